#!/usr/bin/env python3
"""`wenet-uio profile` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.profile_data import main

if __name__ == "__main__":
    run(main)
