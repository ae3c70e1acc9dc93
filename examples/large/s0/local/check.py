#!/usr/bin/env python3
"""Check sources.yaml and write access to the store before hours of work; print the folder of each
source.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sources import read_sources

from wenet_uio.base.cli import run
from wenet_uio.prepare.upload import try_store


def main() -> None:
    """Read the sources, try the store if there is one, and print the folders of the lists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path, help="yaml list of name, data, weight")
    parser.add_argument("data", type=Path, help="folder of the recipe's data")
    parser.add_argument(
        "--storage", default="", help="folder in a store, such as s3://bucket/folder"
    )
    args = parser.parse_args()
    sources = read_sources(args.sources)
    if args.storage:
        try_store(args.storage)

    for source in sources:
        print(source.part(args.data))


if __name__ == "__main__":
    run(main)
