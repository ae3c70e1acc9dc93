#!/usr/bin/env python3
"""`wenet-uio download` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.download import main

if __name__ == "__main__":
    run(main)
