#!/usr/bin/env python3
"""`wenet-uio bins` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.estimate_duration_bins import main

if __name__ == "__main__":
    run(main)
