#!/usr/bin/env python3
"""`wenet-uio report` for recipes."""

from wenet_uio.cli import run
from wenet_uio.tools.report_run import main

if __name__ == "__main__":
    run(main)
