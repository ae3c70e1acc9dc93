#!/usr/bin/env python3
"""`wenet-uio modes` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.decoding_defaults import main

if __name__ == "__main__":
    run(main)
