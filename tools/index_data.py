#!/usr/bin/env python3
"""`wenet-uio index` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.index_data import main

if __name__ == "__main__":
    run(main)
