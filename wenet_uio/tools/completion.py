"""Print the script that completes wenet-uio in a shell: commands, options, choices and files.

    %(prog)s bash \\
        > ~/.local/share/bash-completion/completions/wenet-uio
    %(prog)s zsh > ~/.zfunc/_wenet-uio    # a folder of fpath
    %(prog)s fish > ~/.config/fish/completions/wenet-uio.fish

The script needs no Python at a TAB. Print it again after an update of the package.
"""

import argparse
from collections.abc import Sequence

from wenet_uio.cli import command_parser, run
from wenet_uio.commands import COMMANDS, parser_of_command
from wenet_uio.completion import SCRIPTS, completed


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("shell", choices=SCRIPTS, help="the shell")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options of all commands and print the script."""
    args = parser().parse_args(arguments)

    commands = {}
    for name, command in COMMANDS.items():
        commands |= completed(name, command.purpose, parser_of_command(name))

    print(SCRIPTS[args.shell](commands), end="")


if __name__ == "__main__":
    run(main)
