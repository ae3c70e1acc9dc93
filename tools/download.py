#!/usr/bin/env python3
"""`wenet-uio download` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.download import main

if __name__ == "__main__":
    run(main)
