#!/usr/bin/env python3
"""Upload the shards of each source to the store, and write the mixture for training.

Without --storage nothing is uploaded, and the mixture names the local lists.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml
from sources import read_sources

from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor
from wenet_uio.base.files import written_aside
from wenet_uio.prepare.upload import put_shards


def main() -> None:
    """Upload the lists of the sources if there is a store, and write mixture.yaml."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", type=Path, help="yaml list of name, data, weight")
    parser.add_argument(
        "data", type=Path, help="folder of the recipe's data, with the list of each source"
    )
    parser.add_argument("--data_type", choices=("raw", "shard"), required=True)
    parser.add_argument(
        "--storage", default="", help="folder in a store, such as s3://bucket/folder"
    )
    parser.add_argument(
        "--uploads", type=int, required=True, help="shards uploaded at the same time"
    )
    args = parser.parse_args()

    mixture = []
    for source in read_sources(args.sources):
        part = source.part(args.data)
        data_list = str(part / "data.list")
        if args.storage:
            target = f"{args.storage.rstrip('/')}/{source.name}"
            remote_list = str(part / "remote.list")
            executor = Executor(args.uploads, "threads")
            shards, copied = put_shards(data_list, target, remote_list, executor)
            print(f"{remote_list}: {shards} shards in {target}, {copied} of them copied")
            data_list = remote_list

        entry = {
            "type": args.data_type,
            "data_list": data_list,
            "weight": source.weight,
            "tags": {"source": source.name},
        }
        mixture.append(entry)

    with written_aside(args.data / "mixture.yaml", "w") as file:
        yaml.safe_dump({"sources": mixture}, file, sort_keys=False, allow_unicode=True)


if __name__ == "__main__":
    run(main)
