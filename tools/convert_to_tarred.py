#!/usr/bin/env python3
"""`wenet-uio tar` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.convert_to_tarred import main

if __name__ == "__main__":
    run(main)
