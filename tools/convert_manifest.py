#!/usr/bin/env python3
"""Convert between NeMo manifests, Lhotse cuts, Kaldi directories and raw lists; TSV and CSV can be read.

    convert_manifest.py train_manifest.json data.list --from nemo --to raw
    convert_manifest.py data/train cuts.jsonl.gz --from kaldi --to lhotse

Segments are kept. Other fields of an utterance are kept if the target has room for them. Paths become absolute.
"""

import argparse

from wenet_uio.cli import run
from wenet_uio.executor import add_executor_options, executor_of
from wenet_uio.prepare.manifests import READERS, WRITERS, convert_manifest


def main() -> None:
    """Convert the source and print the number of utterances."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "source", help="file to read; with --from kaldi the folder of wav.scp, text, segments, utt2dur, …"
    )
    parser.add_argument("target", help="file to write; with --to kaldi a folder")
    parser.add_argument("--from", dest="read_as", required=True, choices=READERS, help="form of the source")
    parser.add_argument("--to", dest="write_as", required=True, choices=WRITERS, help="form of the target")
    add_executor_options(parser, "--num_threads", "--nj")
    args = parser.parse_args()
    count = convert_manifest(args.source, args.read_as, args.target, args.write_as, executor_of(args))
    print(f"{args.target}: {count} utterances")


if __name__ == "__main__":
    run(main)
