#!/usr/bin/env python3
"""`wenet-uio manifest` for recipes."""

from wenet_uio.bin.convert_manifest import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
