"""Make the data lists of pseudo labels; the command is that of the add-on `corpora`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from wenet_uio.addons.corpora import pseudo_command

    return pseudo_command.parser()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the list, and print what is left out."""
    from wenet_uio.addons.corpora import pseudo_command

    pseudo_command.main(arguments)


if __name__ == "__main__":
    run(main)
