#!/usr/bin/env python3
"""`wenet-uio batch-size` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.find_batch_size import main

if __name__ == "__main__":
    run(main)
