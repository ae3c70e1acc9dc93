#!/usr/bin/env python3
"""Unpack the archive of each speaker, FOLDER/*.tar.gz, into FOLDER, and remove it."""

from __future__ import annotations

import argparse
from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.archive import unpack_into


def main() -> None:
    """Unpack all archives; a second call continues with those that are left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="data_aishell/wav")
    folder = parser.parse_args().folder
    for archive in sorted(folder.glob("*.tar.gz")):
        unpack_into(archive, folder)
        archive.unlink()


if __name__ == "__main__":
    run(main)
