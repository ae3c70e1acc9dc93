#!/usr/bin/env python3
"""`wenet-uio tar` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.convert_to_tarred import main

if __name__ == "__main__":
    run(main)
