#!/usr/bin/env python3
"""`wenet-uio ablation` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.ablation_table import main

if __name__ == "__main__":
    run(main)
