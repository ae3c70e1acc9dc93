#!/usr/bin/env python3
"""`wenet-uio download` for recipes."""

from wenet_uio.bin.download import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
