#!/usr/bin/env python3
"""Convert between NeMo manifests, Lhotse cuts, Kaldi directories and raw lists.

A corpus of your own can be read as well.

    convert_manifest.py train_manifest.json data.list --to raw
    convert_manifest.py data/train cuts.jsonl.gz --from kaldi --to lhotse
    convert_manifest.py LJSpeech-1.1 manifest.json --to nemo
    convert_manifest.py talk.srt talk.list --to raw

The form of the source is found out by looking: a table, or a folder of audio with texts. What was
understood is printed before anything is written. examples/custom/s0/local/prepare_data.py --help
describes all forms. Segments are kept. Other fields of an utterance are kept if the target has room
for them. Paths become absolute.
"""

import argparse
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.executor import add_executor_options, executor_of
from wenet_uio.prepare.manifests import WRITERS, convert_manifest
from wenet_uio.prepare.own_corpus import ReadOptions
from wenet_uio.prepare.readers import READERS
from wenet_uio.prepare.texts import TEXTS


def main() -> None:
    """Convert the source and print the number of utterances."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source",
        help="file or folder to read; with --from kaldi the folder of wav.scp, text, segments, "
        "utt2dur, …",
    )
    parser.add_argument("target", help="file to write; with --to kaldi a folder")
    parser.add_argument(
        "--from",
        "--form",
        dest="read_as",
        choices=READERS,
        help="form of the source (default: found out by looking)",
    )
    parser.add_argument(
        "--to", dest="write_as", required=True, choices=WRITERS, help="form of the target"
    )
    parser.add_argument(
        "--audio", type=Path, help="folder to search for audio (default: paths as the source says)"
    )
    parser.add_argument(
        "--text_field", help="column, tier or suffix of the texts, where there are several"
    )
    parser.add_argument(
        "--text",
        choices=TEXTS,
        default="keep",
        help="how texts are normalised; clean: without characters that nobody sees, see "
        "wenet_uio/text/README.md (default: %(default)s)",
    )
    add_executor_options(parser, "--num_threads", "--nj")
    args = parser.parse_args()
    options = ReadOptions(audio=args.audio, text_field=args.text_field)
    count = convert_manifest(
        args.source,
        args.read_as,
        args.target,
        args.write_as,
        executor_of(args),
        options,
        args.text,
    )
    print(f"{args.target}: {count} utterances")


if __name__ == "__main__":
    run(main)
