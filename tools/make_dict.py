#!/usr/bin/env python3
"""`wenet-uio units` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.make_dict import main

if __name__ == "__main__":
    run(main)
