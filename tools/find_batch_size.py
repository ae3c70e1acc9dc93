#!/usr/bin/env python3
"""`wenet-uio batch-size` for recipes."""

from wenet_uio.bin.find_batch_size import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
