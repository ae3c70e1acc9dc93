#!/usr/bin/env python3
"""`wenet-uio report` for recipes."""

from wenet_uio.bin.report_run import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
