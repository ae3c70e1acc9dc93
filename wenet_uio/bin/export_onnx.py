"""Export a trained model to ONNX; the command is that of the add-on `runtimes`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from wenet_uio.addons.runtimes import command

    return command.parser()


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, check and write the models."""
    from wenet_uio.addons.runtimes import command

    command.main(arguments)


if __name__ == "__main__":
    run(main)
