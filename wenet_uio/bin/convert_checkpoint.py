#!/usr/bin/env python3
"""Convert a model of another package to a folder with train.yaml, final.pt and the vocabulary.

    %(prog)s --input small.pt --output_dir exp/small
    %(prog)s --input funasr-model/ --output_dir exp/converted
    %(prog)s --input icefall-model/ --output_dir exp/converted
    %(prog)s --input exp/converted --output_dir icefall/ --to icefall

The names of the files tell the layout of the input; --layout lists the known ones. The last command
goes back. The folder is that of a trained model: recognize.py, transcribe.py and
`wenet_uio.load_model` take it, and `train.py --checkpoint DIR/final.pt` trains it further.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import command_parser, run
from wenet_uio.models.converted import write_model
from wenet_uio.train.trained_model import convert_model, layouts


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    known = layouts()
    parser = command_parser(__doc__)
    parser.add_argument(
        "--input", required=True, metavar="PATH", help="file or folder of the model"
    )
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--layout",
        choices=known,
        help="layout of the input (default: the one that the names of its files tell): "
        + "; ".join(f"{name}: {layout.what}" for name, layout in known.items()),
    )
    parser.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="file of the tokens (default: the one beside the input, or that of an installed "
        "package, such as multilingual.tiktoken, gpt2.tiktoken, vocab.json or tokenizer.json)",
    )
    parser.add_argument(
        "--to",
        choices=[name for name, layout in known.items() if layout.write],
        help="convert the other way: the input is a trained model of ours, the output has this "
        "layout",
    )

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Convert the model, and say what was written."""
    args = parser().parse_args(arguments)
    vocabulary = Path(args.vocabulary) if args.vocabulary else None
    if vocabulary is not None and not vocabulary.is_file():
        raise FileNotFoundError(f"{vocabulary}: no such file")

    write = layouts()[args.to].write if args.to else None
    if write is not None:
        count = write(Path(args.input), Path(args.output_dir))
        print(f"{args.output_dir}: a model of the layout {args.to} with {count} weights")
        return

    converted = convert_model(Path(args.input), args.layout, vocabulary)
    count = write_model(converted, Path(args.output_dir))
    print(f"{args.output_dir}: model {converted.values['model']} with {count} weights")
    for note in converted.notes:
        print(f"  {note}")


if __name__ == "__main__":
    run(main)
