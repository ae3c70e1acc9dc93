"""Cut the text of each line into tokens separated by spaces, in the same way as the tokenizers.

    %(prog)s --skip-ncols 1 data/train/text

The text is printed on standard output. Without a file it is read from standard input.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import cast

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.options import positive_int
from wenet_uio.text.symbols import WORD_START
from wenet_uio.text.table import numbered_lines
from wenet_uio.text.tokenizer import build_splitter


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--nchar", "-n", type=positive_int, default=1, help="characters per token")
    parser.add_argument(
        "--skip-ncols",
        "-s",
        type=int,
        default=0,
        help="print the first n fields unchanged (1: the key)",
    )
    parser.add_argument("--space", default=WORD_START, help="token for a space")
    parser.add_argument(
        "--bpe-model",
        "-m",
        help="sentencepiece model; tokens are Chinese characters and its pieces",
    )
    parser.add_argument(
        "--non-lang-syms", "-l", help="file of symbols that are one token each, one per line"
    )
    parser.add_argument(
        "--trans_type",
        "-t",
        choices=("char", "phn", "cn_char_en_bpe"),
        help="char, phn (words between spaces), or cn_char_en_bpe (default: cn_char_en_bpe with a model, else char)",
    )
    parser.add_argument("text", nargs="?", default="/dev/stdin", help="default: standard input")

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    options.trans_type = options.trans_type or ("cn_char_en_bpe" if options.bpe_model else "char")
    if options.trans_type == "cn_char_en_bpe" and not options.bpe_model:
        command_line.error("-t cn_char_en_bpe needs a sentencepiece model: -m FILE")

    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tokens of each line."""
    options = parse_arguments(arguments)
    splitter = build_splitter(
        "bpe" if options.trans_type == "cn_char_en_bpe" else "char",
        bpe_path=options.bpe_model,
        non_lang_syms_path=options.non_lang_syms,
        split_with_space=options.trans_type == "phn",
    )
    chars_per_token = options.nchar if options.trans_type == "char" else 1
    cast(io.TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8")

    for _, line in numbered_lines(options.text):
        fields = line.split()
        tokens = splitter(" ".join(fields[options.skip_ncols :]))
        if options.trans_type == "char":
            tokens = [options.space if token == WORD_START else token for token in tokens]

        printed = fields[: options.skip_ncols]
        for start in range(0, len(tokens), chars_per_token):
            printed.append("".join(tokens[start : start + chars_per_token]))
        print(*printed)


if __name__ == "__main__":
    run(main, prints_data=True)
