"""Print the folder that has the scripts of the recipes: path.sh and tools/.

    %(prog)s
    . "$(%(prog)s)/path.sh"

It is the clone, or a folder of the installed package.
"""

from wenet_uio.cli import command_parser, run
from wenet_uio.prepare.new_recipe import recipe_home


def main() -> None:
    """Print the folder."""
    command_parser(__doc__).parse_args()
    print(recipe_home())


if __name__ == "__main__":
    run(main)
