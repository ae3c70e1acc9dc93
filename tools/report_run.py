#!/usr/bin/env python3
"""`wenet-uio report` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.report_run import main

if __name__ == "__main__":
    run(main)
