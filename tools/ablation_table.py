#!/usr/bin/env python3
"""`wenet-uio ablation` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.ablation_table import main

if __name__ == "__main__":
    run(main)
