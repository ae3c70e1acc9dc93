"""Write a units file of the tokens of a text.

    %(prog)s data/train/text data/dict/units.txt
    %(prog)s --bpe-model bpe.model data/train/text data/dict/units.txt

Its lines are `symbol id`, with <blank> 0, <unk> 1, <sos/eos> 2, and the others sorted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.prepare.texts import tell_odd_texts
from wenet_uio.text.symbols import write_symbols
from wenet_uio.text.table import read_table
from wenet_uio.text.tokenizer import build_splitter


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--bpe-model", "-m", help="sentencepiece model: units are its pieces (default: characters)"
    )
    parser.add_argument(
        "--non-lang-syms", "-l", help="file of symbols that are one unit each, one per line"
    )
    parser.add_argument(
        "--split_with_space", action="store_true", help="units are words between spaces"
    )
    parser.add_argument(
        "--min_count", type=int, default=1, help="leave out tokens that occur less often"
    )
    parser.add_argument("text", help="file with lines `key text`")
    parser.add_argument("units", help="file to write")

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    if options.bpe_model and options.split_with_space:
        command_line.error("--split_with_space is for characters, not for a sentencepiece model")

    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Count the tokens of the text and write the units file."""
    options = parse_arguments(arguments)
    splitter = build_splitter(
        "bpe" if options.bpe_model else "char",
        bpe_path=options.bpe_model,
        non_lang_syms_path=options.non_lang_syms,
        split_with_space=options.split_with_space,
    )
    counts: Counter[str] = Counter()
    texts = read_table(options.text)
    tell_odd_texts(options.text, texts.items())
    for text in texts.values():
        counts.update(splitter(text))

    kept = [token for token, count in counts.items() if count >= options.min_count]
    if not kept:
        raise ValueError(
            f"{options.text}: no token occurs {options.min_count} times; is there a key before "
            "each text?"
        )

    write_symbols(options.units, kept)


if __name__ == "__main__":
    run(main)
