#!/usr/bin/env python3
"""`wenet-uio join` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.join_utterances import main

if __name__ == "__main__":
    run(main)
