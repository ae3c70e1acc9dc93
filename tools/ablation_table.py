#!/usr/bin/env python3
"""`wenet-uio ablation` for recipes."""

from wenet_uio.bin.ablation_table import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
