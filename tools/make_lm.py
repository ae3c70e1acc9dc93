#!/usr/bin/env python3
"""`wenet-uio lm` for recipes."""

from wenet_uio.bin.make_lm import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
