#!/usr/bin/env python3
"""`wenet-uio lists` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.make_raw_list import main

if __name__ == "__main__":
    run(main)
