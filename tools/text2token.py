#!/usr/bin/env python3
"""`wenet-uio tokens` for recipes."""

from wenet_uio.bin.text2token import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main, prints_data=True)
