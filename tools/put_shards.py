#!/usr/bin/env python3
"""`wenet-uio upload` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.put_shards import main

if __name__ == "__main__":
    run(main)
