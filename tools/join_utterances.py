#!/usr/bin/env python3
"""`wenet-uio join` for recipes."""

from wenet_uio.bin.join_utterances import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
