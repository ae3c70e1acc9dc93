#!/usr/bin/env python3
"""`wenet-uio plan` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.plan_report import main

if __name__ == "__main__":
    run(main)
