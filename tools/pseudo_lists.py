#!/usr/bin/env python3
"""`wenet-uio pseudo` for recipes."""

from wenet_uio.bin.pseudo_lists import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
