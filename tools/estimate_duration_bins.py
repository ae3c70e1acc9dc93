#!/usr/bin/env python3
"""`wenet-uio bins` for recipes."""

from wenet_uio.bin.estimate_duration_bins import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
