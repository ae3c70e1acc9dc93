"""Score recognised text: error rate of words or characters, alignments, totals by script.

    %(prog)s --unit=char --v=1 data/test/text exp/a/text
    %(prog)s --v=0 --compare exp/b/text data/test/text exp/a/text
    %(prog)s --v=0 --html errors.html --data_list data/test/data.list \\
        data/test/text exp/a/text

The report has a 95 %% interval of the error rate, from resamples of the utterances (bootstrap).
--compare tests whether the difference between two systems on the same utterances is more than
chance.
"""

from __future__ import annotations

import argparse
import io
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from wenet_uio.base.cli import add_json, command_parser, print_json, run
from wenet_uio.base.files import written_aside
from wenet_uio.base.options import positive_int
from wenet_uio.scoring.normaliser import NormaliserName, load_normaliser
from wenet_uio.scoring.scores import (
    ReportFormat,
    Scores,
    as_dict,
    score,
    write_comparison,
    write_report,
)
from wenet_uio.scoring.trn import Transcripts, paired, read_transcripts
from wenet_uio.scoring.words import Unit, WordRules


def switch(value: str) -> bool:
    """Read 0, 1, true or false."""
    if value.lower() not in ("0", "1", "false", "true"):
        raise argparse.ArgumentTypeError(f"expected 0 or 1, found {value!r}")
    return value.lower() in ("1", "true")


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the web page."""
    parser.add_argument("--html", metavar="FILE", help="write a web page with the errors in colour")
    parser.add_argument(
        "--html_utterances",
        type=int,
        default=100,
        metavar="N",
        help="utterances on the page: those with most errors",
    )
    parser.add_argument(
        "--data_list", metavar="FILE", help="data list whose audio the page can play"
    )
    parser.add_argument(
        "--data_type",
        choices=("raw", "shard"),
        default="raw",
        help="type of the data list",
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    unit = parser.add_mutually_exclusive_group()
    unit.add_argument(
        "--unit",
        choices=get_args(Unit),
        default="word",
        help="what is counted. word: words between spaces (WER); char: characters, with "
        "the spaces between words (CER of any script); auto: each ideograph and each run of Latin "
        "characters, as in WeNet (CER of Mandarin, WER of English, else mixed error rate, MER)",
    )
    unit.add_argument(
        "--char",
        dest="unit",
        type=lambda value: "auto" if switch(value) else "word",
        metavar="{0,1}",
        help="as in WeNet; 0: --unit word, 1: --unit auto",
    )
    parser.add_argument(
        "--normalize",
        choices=get_args(NormaliserName),
        help="normalise references and hypotheses, to compare with error rates that others publish. "
        "english: as Whisper does (case, punctuation, contractions, numbers, spelling); basic: case, "
        "punctuation and symbols of other languages",
    )
    parser.add_argument(
        "--v",
        type=int,
        default=1,
        choices=(0, 1, 2),
        help="0: only totals; 1: also alignments; 2: alignments with keys",
    )
    parser.add_argument(
        "--cs", type=switch, default="0", metavar="{0,1}", help="1: upper and lower case differ"
    )
    parser.add_argument("--rt", type=switch, default="1", metavar="{0,1}", help="1: remove <tags>")
    parser.add_argument(
        "--ig", metavar="FILE", help="file of words to remove before scoring, one per line"
    )
    parser.add_argument(
        "--maxw", type=positive_int, metavar="N", help="words per line of an alignment"
    )
    parser.add_argument(
        "--padding-symbol",
        choices=("space", "underline"),
        default="space",
        help="fills words of an alignment to equal width",
    )
    parser.add_argument(
        "--bootstrap",
        type=int,
        default=1000,
        metavar="N",
        help="resamples for intervals; 0: no interval",
    )
    parser.add_argument(
        "--compare", metavar="HYP", help="hypotheses of a second system, to compare with the first"
    )
    add_json(parser, "totals and the counts of each utterance as one JSON object")
    add_page_options(parser)
    formats = "`key text` per line, or the `text (key)` of sclite"
    parser.add_argument("ref", help=f"references, {formats}")
    parser.add_argument("hyp", help=f"hypotheses, {formats}")

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    if options.bootstrap < 0 or (options.compare and not options.bootstrap):
        command_line.error(
            "--bootstrap: expected 0 or more resamples, with --compare 1 or more, found "
            f"{options.bootstrap}"
        )

    if options.normalize and options.cs:
        command_line.error("--normalize: it ignores case; leave out --cs 1")

    if options.data_list and not options.html:
        command_line.error("--data_list needs --html: the page plays its audio")

    return options


def write_page(options: argparse.Namespace, scores: Scores) -> None:
    """Write the page of errors, with players if a data list is given."""
    from wenet_uio.scoring.html_report import write_html  # only pages need it; it is slow to import

    audio = None
    if options.data_list:
        from wenet_uio.prepare.diagnose.list_audio import audio_reader

        audio = audio_reader(options.data_list, options.data_type)

    with written_aside(options.html, "w") as file:
        write_html(
            scores,
            file,
            title=options.hyp,
            utterances=options.html_utterances,
            audio=audio,
        )


def print_report(options: argparse.Namespace, scores: Scores, other: Scores | None) -> None:
    """Print alignments and totals, and the comparison with a second system if there is one."""
    padding = "_" if options.padding_symbol == "underline" else " "
    report_format = ReportFormat(options.v, options.maxw, padding, options.bootstrap)
    write_report(scores, sys.stdout, report_format)
    if other is not None:
        systems = (options.hyp, scores), (options.compare, other)
        write_comparison(*systems, sys.stdout, options.bootstrap)


def score_file(
    references: Transcripts, path: str, rules: WordRules, normalize: NormaliserName | None
) -> Scores:
    """Score a file of hypotheses."""
    texts, hypotheses = paired(references, read_transcripts(path))
    if normalize:
        normalise = load_normaliser(normalize)
        texts = {key: normalise(text) for key, text in texts.items()}
        hypotheses = {key: normalise(text) for key, text in hypotheses.items()}

    return score(texts, hypotheses, rules)


def main(arguments: Sequence[str] | None = None) -> None:
    """Score the hypotheses, print the report and the comparison, and write the page."""
    options = parse_arguments(arguments)
    ignored: list[str] = []
    if options.ig:
        text = unicodedata.normalize("NFC", Path(options.ig).read_text(encoding="utf-8"))
        for word in text.split():
            ignored.append(word if options.cs else word.upper())

    rules = WordRules(
        unit=options.unit,
        case_sensitive=options.cs,
        remove_tags=options.rt,
        ignored=frozenset(ignored),
    )
    references = read_transcripts(options.ref)
    scores = score_file(references, options.hyp, rules, options.normalize)
    other = None
    if options.compare:
        other = score_file(references, options.compare, rules, options.normalize)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Whatever the locale: other tools read the report as UTF-8
        sys.stdout.reconfigure(encoding="utf-8")

    if options.json:
        print_json(as_dict(scores, options.bootstrap, other))
    else:
        print_report(options, scores, other)

    if options.html:
        write_page(options, scores)


if __name__ == "__main__":
    run(main, prints_data=True)
