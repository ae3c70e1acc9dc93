#!/usr/bin/env python3
"""`wenet-uio pseudo` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.pseudo_lists import main

if __name__ == "__main__":
    run(main)
