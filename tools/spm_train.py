#!/usr/bin/env python3
"""`wenet-uio bpe` for recipes."""

from wenet_uio.bin.spm_train import main
from wenet_uio.cli import run

if __name__ == "__main__":
    run(main)
