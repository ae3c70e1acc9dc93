"""Print the folder that has the scripts of the recipes: path.sh and tools/.

    %(prog)s
    . "$(%(prog)s)/path.sh"

It is the clone, or a folder of the installed package.
"""

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.prepare.new_recipe import recipe_home


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    return command_parser(__doc__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the folder."""
    parser().parse_args(arguments)
    print(recipe_home())


if __name__ == "__main__":
    run(main)
