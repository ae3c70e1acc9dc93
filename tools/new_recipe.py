#!/usr/bin/env python3
"""`wenet-uio recipe new` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.new_recipe import main

if __name__ == "__main__":
    run(main)
