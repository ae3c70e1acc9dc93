#!/usr/bin/env python3
"""`wenet-uio bpe` for recipes."""

from wenet_uio.base.cli import run
from wenet_uio.bin.spm_train import main

if __name__ == "__main__":
    run(main)
