#!/usr/bin/env python3
"""`wenet-uio check` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.check_data import main

if __name__ == "__main__":
    run(main)
