#!/usr/bin/env python3
"""`wenet-uio lm` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.make_lm import main

if __name__ == "__main__":
    run(main)
