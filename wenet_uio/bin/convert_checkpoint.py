#!/usr/bin/env python3
"""Convert a model of another package to a folder with train.yaml, final.pt and the vocabulary.

    python -m wenet_uio.bin.convert_checkpoint --input small.pt --output_dir exp/whisper_small
    python -m wenet_uio.bin.convert_checkpoint --input whisper-small/ --output_dir exp/whisper_small
    python -m wenet_uio.bin.convert_checkpoint --input paraformer-large/ --output_dir exp/paraformer
    python -m wenet_uio.bin.convert_checkpoint --input icefall-zipformer/ --output_dir exp/zipformer
    python -m wenet_uio.bin.convert_checkpoint --input exp/zipformer --output_dir icefall/ --to
    icefall

The first is a Whisper as OpenAI publishes it, the second a folder of Hugging Face with config.json
and model.safetensors or pytorch_model.bin, the third a Paraformer of FunASR with config.yaml,
model.pt and am.mvn, the fourth a Zipformer of icefall with CTC: pretrained.pt, tokens.txt and, for
pieces, bpe.model. The last goes back. The folder is that of a trained model: recognize.py,
transcribe.py and `wenet_uio.load_model` take it, and `train.py --checkpoint DIR/final.pt` trains it
further.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.convert.converted import write_model
from wenet_uio.convert.layouts import LAYOUTS, convert
from wenet_uio.models.encoders.zipformer.exchange.icefall import to_icefall


def parse_arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--input", required=True, metavar="PATH", help="file or folder of the model"
    )
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="layout of the input (default: the one that the names of its files tell)",
    )
    parser.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="file of the tokens (default: the one beside the input; Whisper: "
        "multilingual.tiktoken, gpt2.tiktoken or "
        "vocab.json, else that of the installed package openai-whisper)",
    )
    parser.add_argument(
        "--to",
        choices=["icefall"],
        help="write pretrained.pt and tokens.txt of a trained zipformer instead",
    )
    return parser.parse_args()


def main() -> None:
    """Convert the model, and say what was written."""
    args = parse_arguments()
    vocabulary = Path(args.vocabulary) if args.vocabulary else None
    if vocabulary is not None and not vocabulary.is_file():
        raise FileNotFoundError(f"{vocabulary}: no such file")
    if args.to:
        count = to_icefall(Path(args.input), Path(args.output_dir))
        print(f"{args.output_dir}: pretrained.pt with {count} weights")
        return
    converted = convert(Path(args.input), args.layout, vocabulary)
    count = write_model(converted, Path(args.output_dir))
    print(f"{args.output_dir}: model {converted.values['model']} with {count} weights")
    for note in converted.notes:
        print(f"  {note}")


if __name__ == "__main__":
    run(main)
