#!/usr/bin/env python3
"""`wenet-uio plan` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.plan_report import main

if __name__ == "__main__":
    run(main)
