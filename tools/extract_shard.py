#!/usr/bin/env python3
"""`wenet-uio extract` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.extract_shard import main

if __name__ == "__main__":
    run(main, prints_data=True)
