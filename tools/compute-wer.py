#!/usr/bin/env python3
"""Word error rate of recognised text, with the alignment of every utterance and totals by script."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.text.scoring import score, write_report
from wenet_uio.text.table import read_table
from wenet_uio.text.words import WordRules


def switch(value: str) -> bool:
    """Read 0, 1, true or false."""
    if value.lower() not in ("0", "1", "false", "true"):
        raise argparse.ArgumentTypeError(f"expected 0 or 1, found {value!r}")
    return value.lower() in ("1", "true")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
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
    parser.add_argument("ref", help="references, `key text` a line")
    parser.add_argument("hyp", help="hypotheses, `key text` a line")
    options = parser.parse_args()
    if options.maxw is not None and options.maxw < 1:
        parser.error("--maxw: expected a number of words from 1 up")
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
    scores = score(read_table(options.ref), read_table(options.hyp), rules)
    sys.stdout.reconfigure(encoding="utf-8")
    padding = "_" if options.padding_symbol == "underline" else " "
    write_report(scores, sys.stdout, verbose=options.v, words_per_line=options.maxw, padding=padding)


if __name__ == "__main__":
    run(main)
