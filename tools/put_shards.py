#!/usr/bin/env python3
"""`wenet-uio upload` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.put_shards import main

if __name__ == "__main__":
    run(main)
