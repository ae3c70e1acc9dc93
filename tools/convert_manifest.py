#!/usr/bin/env python3
"""`wenet-uio manifest` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.convert_manifest import main

if __name__ == "__main__":
    run(main)
