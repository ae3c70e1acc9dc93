"""Name the option that was probably meant by one that a command does not have."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from wenet_uio.base.nearest import nearest_name

OPTION = re.compile(r"--?[A-Za-z][^\s=]*(?==|\Z)")
"""An option at the start of a word; a negative number, `-` and a text with blanks are values."""


class SuggestingParser(argparse.ArgumentParser):
    """A parser whose first error is an unknown option, with the nearest option that it has."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Parse the command line; see `refuse_unknown_options`."""
        words = sys.argv[1:] if args is None else list(args)
        refuse_unknown_options(self, words)
        return super().parse_args(words, namespace)


def refuse_unknown_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End the command with one error line if a word is an option that the parser does not have.

    argparse alone reports missing arguments before an unknown option, which may be the misspelt
    name of one of them.
    """
    options = parser._option_string_actions
    takes_rest = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    commands = _commands_of(parser)
    is_value = False

    for place, word in enumerate(words):
        option = OPTION.match(word)
        if is_value:
            is_value = False
        elif option is not None:
            _refuse_unknown(option[0], parser)
            is_value = word in options and options[word].nargs is None
        elif word in commands:
            refuse_unknown_options(commands[word], words[place + 1 :])
            return
        elif takes_rest or word == "--":
            return


def _refuse_unknown(option: str, parser: argparse.ArgumentParser) -> None:
    """End the command unless argparse takes the option: its name, the beginning of a name, or `-x`
    and its value.
    """
    options = parser._option_string_actions
    is_short = not option.startswith("--") and option[:2] in options
    if is_short or any(name.startswith(option) for name in options):
        return

    names = {
        name.lstrip("-"): name
        for name, action in options.items()
        if action.help != argparse.SUPPRESS
    }
    nearest = nearest_name(option.lstrip("-"), names)
    hint = f"did you mean {names[nearest]}?" if nearest else "--help lists the options"
    parser.error(f"unknown option {option}; {hint}")


def _commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return {name: parser} of the sub-commands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
