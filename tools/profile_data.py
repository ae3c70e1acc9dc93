#!/usr/bin/env python3
"""`wenet-uio profile` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.profile_data import main

if __name__ == "__main__":
    run(main)
