#!/usr/bin/env python3
"""`wenet-uio extract` for recipes."""

from wenet_uio.bin.extract_shard import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main, prints_data=True)
