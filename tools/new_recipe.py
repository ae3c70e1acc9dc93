#!/usr/bin/env python3
"""`wenet-uio recipe new` for recipes."""

from wenet_uio.bin.new_recipe import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
