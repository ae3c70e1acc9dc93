#!/usr/bin/env python3
"""`wenet-uio modes` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.decoding_defaults import main

if __name__ == "__main__":
    run(main)
