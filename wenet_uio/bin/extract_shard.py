"""List, print or extract the samples of shards.

    %(prog)s shards_000000000.tar
    %(prog)s shards_000000000.tar --keys utt7 'spk1_*' --json
    %(prog)s shards_000000000.tar --keys utt7 --to folder

The first form prints key, seconds, Hz, members and text of each sample, the second one the texts
and audio headers as JSON. The third form writes the members into the folder.

Of a damaged shard, all samples that can be read are given. The exit status is then 1.
"""

import argparse
import sys
from collections.abc import Sequence

from wenet_uio.base.cli import add_json, command_parser, run
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.extraction import extract, read_samples


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("shards", nargs="+", help="tars, plain or compressed")
    parser.add_argument(
        "--keys",
        nargs="+",
        default=[],
        metavar="GLOB",
        help="only samples whose key matches one of these",
    )
    add_json(parser, "one JSON object per sample: texts and audio headers")
    parser.add_argument(
        "--to", metavar="FOLDER", help="write the members of the samples into this folder"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the samples that match, and extract them if --to is given.

    Returns:
        the exit status: 1 if a shard is damaged.
    """
    args = parser().parse_args(arguments)
    count = failed = 0

    for shard in args.shards:
        try:
            for sample in read_samples(shard, args.keys):
                count += 1
                print(sample.as_json() if args.json else sample.as_row())
                if args.to:
                    extract(sample, args.to)
        except ListError as error:
            print(f"error: {error}", file=sys.stderr)
            failed = 1

    if not count and not failed:
        with_key = "with such a key " if args.keys else ""
        raise ValueError(f"no sample {with_key}in {', '.join(args.shards)}")

    return failed


if __name__ == "__main__":
    run(main, prints_data=True)
