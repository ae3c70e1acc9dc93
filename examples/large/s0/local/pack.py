#!/usr/bin/env python3
"""Make the data list of each source, bring its shards to the store, and write the mixture that is trained on.

Shards are packed by --executor; with `ray` the whole cluster packs. Without --storage they stay where they are.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import yaml
from sources import read_sources

from wenet_uio.cli import run
from wenet_uio.files import written_aside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, help="yaml list of name, data, weight")
    parser.add_argument("data", type=Path, help="folder that stage 0 made")
    parser.add_argument("--data_type", choices=("raw", "shard"), required=True)
    parser.add_argument("--storage", default="", help="folder in a store, such as s3://bucket/folder")
    parser.add_argument("--num_utts_per_shard", default="1000")
    parser.add_argument("--nj", default="1")
    parser.add_argument("--executor", default="processes")
    args = parser.parse_args()

    mixture = []
    for source in read_sources(args.sources):
        part = args.data / source.name
        flags = {"data_type": args.data_type, "num_utts_per_shard": args.num_utts_per_shard, "nj": args.nj}
        flags |= {"executor": args.executor, "parts": str(part)}
        _call("make_lists.sh", *(text for name, value in flags.items() for text in (f"--{name}", value)))
        data_list = part / "data.list"
        if args.storage and args.data_type == "shard":
            remote = part / "remote.list"
            _call("put_shards.py", str(data_list), f"{args.storage}/{source.name}", str(remote), "--nj", args.nj)
            data_list = remote
        tags = {"source": source.name}
        mixture.append({"type": args.data_type, "data_list": str(data_list), "weight": source.weight, "tags": tags})
    with written_aside(args.data / "mixture.yaml", "w") as file:
        yaml.safe_dump({"sources": mixture}, file, sort_keys=False, allow_unicode=True)


def _call(*command: str) -> None:
    """Run a tool, whose own line says what went wrong.

    Raises:
        ChildProcessError: it failed.
    """
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise ChildProcessError(f"{command[0]} failed; its message is above")


if __name__ == "__main__":
    run(main)
