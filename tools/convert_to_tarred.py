#!/usr/bin/env python3
"""`wenet-uio tar` for recipes."""

from wenet_uio.bin.convert_to_tarred import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
