#!/usr/bin/env python3
"""`wenet-uio plan` for recipes."""

from wenet_uio.bin.plan_report import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
