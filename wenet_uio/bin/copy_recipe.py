"""Copy the recipe of a public corpus to examples/NAME, ready to run without a clone.

    %(prog)s fsdd
    bash examples/fsdd/s0/run.sh

A clone has the recipes already; this command is for the installed package. The README of a recipe
says what it needs: hub5 also uses the data of fisher. Files for schedulers (examples/large/cluster)
are in the clone alone.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.cli import command_parser, run
from wenet_uio.prepare.new_recipe import copy_recipe, public_recipes


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("name", choices=list(public_recipes()), help="the corpus")
    parser.add_argument(
        "--examples", type=Path, default=Path("examples"), help="folder of the recipes"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Copy the recipe and print how to run it."""
    args = parser().parse_args(arguments)

    for script in copy_recipe(args.name, args.examples):
        print(f"bash {shlex.quote(str(script))}")


if __name__ == "__main__":
    run(main)
