#!/usr/bin/env python3
"""`wenet-uio pseudo` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.pseudo_lists import main

if __name__ == "__main__":
    run(main)
