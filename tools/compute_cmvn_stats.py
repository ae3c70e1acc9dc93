#!/usr/bin/env python3
"""`wenet-uio cmvn` for recipes."""

from wenet_uio.bin.compute_cmvn_stats import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
