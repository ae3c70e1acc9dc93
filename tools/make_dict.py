#!/usr/bin/env python3
"""`wenet-uio units` for recipes."""

from wenet_uio.bin.make_dict import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
