#!/usr/bin/env python3
"""Word error rate of recognised text, with the alignment of every utterance and totals by script.

    compute-wer.py --char=1 --v=1 data/test/text exp/conformer/attention_rescoring/text
    compute-wer.py --v=0 --compare exp/b/attention/text data/test/text exp/a/attention/text
    compute-wer.py --v=0 --html errors.html --data_list data/test/data.list data/test/text exp/a/attention/text

Intervals hold 95 % of the error rates that utterances drawn anew would have (bootstrap). --compare says whether a
second system is better than the first on the same utterances, or only luckier.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wenet_uio.cli import run
from wenet_uio.files import written_aside
from wenet_uio.scoring.scores import score, write_comparison, write_report
from wenet_uio.scoring.words import WordRules
from wenet_uio.text.table import read_table

if TYPE_CHECKING:
    import numpy as np

    from wenet_uio.scoring.html_report import Audio


def switch(value: str) -> bool:
    """Read 0, 1, true or false."""
    if value.lower() not in ("0", "1", "false", "true"):
        raise argparse.ArgumentTypeError(f"expected 0 or 1, found {value!r}")
    return value.lower() in ("1", "true")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--char",
        type=switch,
        default=False,
        metavar="{0,1}",
        help="1: count each ideograph as a word (CER; the mixed rate where Latin words are among them)",
    )
    parser.add_argument("--v", type=int, default=1, choices=(0, 1, 2), help="0: totals; 1: alignments; 2: with keys")
    parser.add_argument("--cs", type=switch, default=False, metavar="{0,1}", help="1: case matters")
    parser.add_argument("--rt", type=switch, default=True, metavar="{0,1}", help="1 (default): leave out <tags>")
    parser.add_argument("--ig", metavar="FILE", help="words to leave out, one a line")
    parser.add_argument("--maxw", type=int, metavar="N", help="words in a line of an alignment")
    parser.add_argument("--padding-symbol", choices=("space", "underline"), default="space")
    parser.add_argument(
        "--bootstrap", type=int, default=1000, metavar="N", help="resamples for intervals (%(default)s; 0: no interval)"
    )
    parser.add_argument("--compare", metavar="HYP", help="hypotheses of a second system, set beside the first")
    parser.add_argument("--html", metavar="FILE", help="write a page with the errors in colour")
    parser.add_argument("--html_utterances", type=int, default=100, metavar="N", help="with most errors (%(default)s)")
    parser.add_argument("--data_list", metavar="FILE", help="data list whose audio goes into the page")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="what that list names (raw)")
    parser.add_argument("ref", help="references, `key text` a line")
    parser.add_argument("hyp", help="hypotheses, `key text` a line")
    options = parser.parse_args()
    if options.maxw is not None and options.maxw < 1:
        parser.error("--maxw: expected a number of words from 1 up")
    if options.bootstrap < 0 or (options.compare and not options.bootstrap):
        parser.error("--bootstrap: expected a number of resamples, for --compare from 1 up")
    if options.data_list and not options.html:
        parser.error("--data_list: its audio goes into a page, which --html names")
    return options


def main() -> None:
    options = parse_options()
    ignored = Path(options.ig).read_text(encoding="utf-8").split() if options.ig else []
    rules = WordRules(
        by_character=options.char,
        case_sensitive=options.cs,
        remove_tags=options.rt,
        ignored=frozenset(ignored if options.cs else map(str.upper, ignored)),
    )
    references = read_table(options.ref)
    scores = score(references, read_table(options.hyp), rules)
    sys.stdout.reconfigure(encoding="utf-8")
    padding = "_" if options.padding_symbol == "underline" else " "
    write_report(
        scores,
        sys.stdout,
        verbose=options.v,
        words_per_line=options.maxw,
        padding=padding,
        resamples=options.bootstrap,
    )
    if options.compare:
        other = score(references, read_table(options.compare), rules)
        write_comparison((options.hyp, scores), (options.compare, other), sys.stdout, options.bootstrap)
    if options.html:
        from wenet_uio.scoring.html_report import write_html

        audio = audio_of(options.data_list, options.data_type) if options.data_list else None
        with written_aside(options.html, "w") as file:
            write_html(scores, file, title=options.hyp, utterances=options.html_utterances, audio=audio)


def audio_of(data_list: str, data_type: str) -> Audio:
    """The audio of the utterances of a data list, by key."""
    from wenet_uio.audio.read import read_audio
    from wenet_uio.dataset.corpus.open_list import open_list
    from wenet_uio.dataset.types import SampleRef

    corpus = open_list(data_list, data_type)
    refs = (SampleRef(shard, row) for shard in range(corpus.num_shards) for row in range(corpus.samples[shard]))
    places = {corpus.key(ref): ref for ref in refs}

    def audio(key: str) -> tuple[np.ndarray, int] | None:
        if key not in places:
            return None
        utterance = corpus.read(places[key])
        return read_audio(utterance.audio, utterance.start, utterance.end)

    return audio


if __name__ == "__main__":
    run(main)
