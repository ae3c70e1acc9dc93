#!/usr/bin/env python3
"""`wenet-uio extract` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.extract_shard import main

if __name__ == "__main__":
    run(main, prints_data=True)
