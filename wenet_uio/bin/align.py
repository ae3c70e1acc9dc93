#!/usr/bin/env python3
"""Align a data list with its audio; the command is that of the add-on `listen`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from wenet_uio.addons.listen import align

    return align.parser()


def main(arguments: Sequence[str] | None = None) -> None:
    """Align the data list and write the results."""
    from wenet_uio.addons.listen import align

    align.main(arguments)


if __name__ == "__main__":
    run(main)
