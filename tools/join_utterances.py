#!/usr/bin/env python3
"""`wenet-uio join` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.join_utterances import main

if __name__ == "__main__":
    run(main)
