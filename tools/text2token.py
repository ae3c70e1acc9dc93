#!/usr/bin/env python3
"""`wenet-uio tokens` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.text2token import main

if __name__ == "__main__":
    run(main, prints_data=True)
