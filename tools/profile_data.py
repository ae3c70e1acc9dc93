#!/usr/bin/env python3
"""`wenet-uio profile` for recipes."""

from wenet_uio.bin.profile_data import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
