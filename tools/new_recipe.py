#!/usr/bin/env python3
"""`wenet-uio recipe new` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.new_recipe import main

if __name__ == "__main__":
    run(main)
