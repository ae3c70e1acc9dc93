#!/usr/bin/env python3
"""Serve a trained model; the command is that of the add-on `serve`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from wenet_uio.addons.serve import command

    return command.parser()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    from wenet_uio.addons.serve import command

    return command.main(arguments)


if __name__ == "__main__":
    run(main)
