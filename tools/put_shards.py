#!/usr/bin/env python3
"""`wenet-uio upload` for recipes."""

from wenet_uio.bin.put_shards import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
