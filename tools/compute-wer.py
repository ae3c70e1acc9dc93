#!/usr/bin/env python3
"""`wenet-uio score` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.compute_wer import main

if __name__ == "__main__":
    run(main, prints_data=True)
