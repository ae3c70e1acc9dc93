#!/usr/bin/env python3
"""Transcribe audio files of any length; the command is that of the add-on `listen`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from wenet_uio.addons.listen import transcribe

    return transcribe.parser()


def main(arguments: Sequence[str] | None = None) -> int:
    """Transcribe all files; 1 if one could not be read."""
    from wenet_uio.addons.listen import transcribe

    return transcribe.main(arguments)


if __name__ == "__main__":
    run(main, prints_data=True)
