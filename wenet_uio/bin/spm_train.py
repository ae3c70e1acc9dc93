"""Train a sentencepiece model (MODEL_PREFIX.model and .vocab) for the bpe tokenizer.

    %(prog)s --input data/train/text --skip-ncols 1 --vocab_size 500 \\
        --model_prefix data/dict/bpe

MODEL_PREFIX.model has the model, MODEL_PREFIX.vocab its pieces as text.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.text.spm import MODEL_TYPES, SentencepieceOptions, train_sentencepiece
from wenet_uio.text.symbols import read_non_lang_syms
from wenet_uio.text.table import numbered_lines


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--input", required=True, help="text files, separated by commas; one utterance per line"
    )
    parser.add_argument(
        "--skip-ncols",
        "-s",
        type=int,
        default=0,
        help="leave out the first n fields of a line (1: the key)",
    )
    parser.add_argument(
        "--non-lang-syms",
        "-l",
        help="file of symbols that are one unit each, one per line; they are removed from the texts",
    )
    parser.add_argument(
        "--model_prefix", required=True, help="path of the model to write, without .model"
    )
    parser.add_argument("--vocab_size", type=int, required=True, help="number of pieces")
    parser.add_argument(
        "--model_type",
        choices=MODEL_TYPES,
        default="unigram",
        help="algorithm of sentencepiece",
    )
    parser.add_argument(
        "--character_coverage",
        type=float,
        default=1.0,
        help="share of the characters of the text that pieces must cover",
    )
    parser.add_argument(
        "--input_sentence_size", type=int, default=0, help="train on n random lines (0: all lines)"
    )
    parser.add_argument("--seed", type=int, default=777, help="seed for drawing lines")

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the model on the texts."""
    options = parser().parse_args(arguments)
    non_lang_syms: tuple[str, ...] = ()
    if options.non_lang_syms:
        non_lang_syms = read_non_lang_syms(options.non_lang_syms)

    conf = SentencepieceOptions(
        vocab_size=options.vocab_size,
        model_type=options.model_type,
        character_coverage=options.character_coverage,
        input_sentence_size=options.input_sentence_size,
        non_lang_syms=non_lang_syms,
        seed=options.seed,
    )
    texts = read_texts(options.input.split(","), options.skip_ncols)
    train_sentencepiece(texts, options.model_prefix, conf)


def read_texts(paths: Sequence[str], skipped_fields: int) -> Iterator[str]:
    """Yield the lines of files without their first fields."""
    for path in paths:
        for _, line in numbered_lines(path):
            yield " ".join(line.split()[skipped_fields:])


if __name__ == "__main__":
    run(main)
