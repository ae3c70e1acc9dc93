#!/usr/bin/env python3
"""`wenet-uio modes` for recipes."""

from wenet_uio.bin.decoding_defaults import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
