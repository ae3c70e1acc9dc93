"""Pack a manifest with its audio into a tarred data set of NeMo; the command is that of the add-on
`nemo`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from wenet_uio.addons.nemo.tars import command

    return command.parser()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or extend the set; returns the exit status."""
    from wenet_uio.addons.nemo.tars import command

    return command.main(arguments)


if __name__ == "__main__":
    run(main)
