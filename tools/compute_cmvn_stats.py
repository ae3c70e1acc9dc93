#!/usr/bin/env python3
"""`wenet-uio cmvn` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.compute_cmvn_stats import main

if __name__ == "__main__":
    run(main)
