"""Print the script that completes wenet-uio in a shell: commands, options, choices and files.

    %(prog)s bash \\
        > ~/.local/share/bash-completion/completions/wenet-uio
    %(prog)s zsh > ~/.zfunc/_wenet-uio    # a folder of fpath
    %(prog)s fish > ~/.config/fish/completions/wenet-uio.fish

The script needs no Python at a TAB. Print it again after an update of the package.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import shtab

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.imports import installed
from wenet_uio.commands import COMMANDS, parser_of_command

SHELLS = ("bash", "zsh", "fish")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options of all commands and print the script."""
    args = parser().parse_args(arguments)
    print(shtab.complete(parser_of_all_commands(), args.shell))


def parser_of_all_commands() -> argparse.ArgumentParser:
    """Return the parser of `wenet-uio` with those of its commands, as shtab completes them."""
    parser = argparse.ArgumentParser(prog="wenet-uio")
    parser.add_argument("--version", action="version", help="print the version")
    commands = {"": parser.add_subparsers()}

    for name, options in installed(COMMANDS, parser_of_command):
        first, _, last = name.rpartition(" ")
        if first not in commands:
            second_words = [other.split()[1] for other in COMMANDS if other.startswith(f"{first} ")]
            below = commands[""].add_parser(first, help=", ".join(second_words))
            commands[first] = below.add_subparsers()

        commands[first].add_parser(
            last, help=COMMANDS[name].purpose, parents=[options], add_help=False
        )

    complete_values(parser)
    return parser


def complete_values(parser: argparse.ArgumentParser) -> None:
    """Tell shtab which options take a file, and which words are named by the metavar alone."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                complete_values(below)
        elif isinstance(action.metavar, str) and action.metavar.startswith("{"):
            action.choices = action.metavar.strip("{}").split(",")
        elif action.choices is None and action.nargs != 0 and action.type in (None, str, Path):
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    run(main)
