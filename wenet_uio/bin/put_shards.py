"""Copy the shards of a list to object storage, and write the list of their URIs for training.

    %(prog)s data/train/data.list s3://corpora/train remote.list --nj 16

A repeated run copies files that are missing or have other contents. The driver of the store is an optional
package (pip install -r requirements/s3.txt); endpoint and credentials come from the environment
(AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …).
"""

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.executor import Executor
from wenet_uio.prepare.upload import put_shards


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("data_list", help="list of local shards")
    parser.add_argument("target", help="folder in the store, such as s3://bucket/folder")
    parser.add_argument("remote_list", help="list of URIs to write")
    parser.add_argument("--nj", type=int, default=4, help="shards copied at the same time")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Upload the shards and print how many were copied."""
    args = parser().parse_args(arguments)
    shards, copied = put_shards(
        args.data_list, args.target, args.remote_list, Executor(args.nj, "threads")
    )
    print(f"{args.remote_list}: {shards} shards in {args.target}, {copied} of them copied")


if __name__ == "__main__":
    run(main)
