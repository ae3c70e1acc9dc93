"""Options of commands: those from the fields of dataclasses, which are the one place for type,
default and help; and an unknown one, for which the nearest is suggested.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from wenet_uio.base.messages import nearest_name

Parser: TypeAlias = "argparse.ArgumentParser | argparse._ArgumentGroup"

OPTION = re.compile(r"--?[A-Za-z][^\s=]*(?==|\Z)")
"""An option at the start of a word; a negative number, `-` and a text with blanks are values."""


def option(
    default: Any,
    *,
    flag: str | None = None,
    others: Collection[str] = (),
    choices: Collection[str] | None = None,
    metavar: str | None = None,
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """Define a field of a dataclass, with what only its command-line option needs.

    Args:
        flag: the option, if it is not `--<name of the field>`.
        others: further spellings of the option.
        choices: the values that it accepts, if the type is not a Literal.
        parse: from text to value, if the type alone does not say it.
    """
    only_for_commands = {
        "flag": flag,
        "others": tuple(others),
        "choices": choices,
        "metavar": metavar,
        "parse": parse,
    }
    return field(default=default, metadata=only_for_commands)


def positive_int(text: str) -> int:
    """Parse a whole number above 0; argparse says whose value is another."""
    number = int(text) if re.fullmatch(r"[+-]?\d+", text) else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text}")
    return number


def add_options(group: Parser, options: type, *names: str) -> None:
    """Add an option for each field of the dataclass `options`, or for the fields `names` only.

    The help is the docstring of the field. Its last words `None: ...` say the default.
    """
    types = get_type_hints(options)
    docs = inherited_docs(options)
    for option_field in fields(options):
        name = option_field.name
        if not names or name in names:
            _add_option(group, option_field, types[name], docs[name])


def values_of(options: type, source: Any, *names: str) -> dict[str, Any]:
    """Collect a dataclass's fields, or those of `names`, from parsed options or another object."""
    values: dict[str, Any] = {}
    for option_field in fields(options):
        if not names or option_field.name in names:
            values[option_field.name] = getattr(source, option_field.name)
    return values


def _add_option(group: Parser, option_field: Field, annotation: Any, doc: str) -> None:
    """Add the option of a field; `option` has put what only the option needs into its metadata."""
    extra = option_field.metadata
    flag = extra.get("flag") or f"--{option_field.name}"
    flags = (flag, *extra.get("others", ()))
    meaning = option_help(doc)

    kind, choices = _type_and_choices(annotation)
    if kind is bool:
        group.add_argument(*flags, action="store_true", dest=option_field.name, help=meaning)
        return

    parse = extra.get("parse")
    group.add_argument(
        *flags,
        dest=option_field.name,
        default=option_field.default,
        type=kind if parse is None else _parser_with_message(parse),
        choices=extra.get("choices") or choices,
        metavar=extra.get("metavar"),
        help=meaning,
    )


def _parser_with_message(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser whose ValueError is shown to the user; argparse shows the name of a parser."""

    def parse_or_explain(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_or_explain


def _type_and_choices(annotation: Any) -> tuple[type, tuple[Any, ...] | None]:
    """Return the type that an option's text becomes, and its choices, from an annotation."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return type(choices[0]), choices

    return annotation, None


def option_help(doc: str) -> str:
    """Turn the docstring of a field into the help of its option.

    `Seconds of a chunk; None: all.` becomes `seconds of a chunk (default: all)`. The parser of the
    command adds defaults that are values.
    """
    text = " ".join(doc.replace("`", "").split()).removesuffix(".").replace("%", "%%")
    text, _, meaning_of_none = text.partition("; None: ")
    if re.match(r"[A-Z]([a-z]+)?\b", text):  # a word of the language, not CTC or WebSockets
        text = text[0].lower() + text[1:]

    return f"{text} (default: {meaning_of_none})" if meaning_of_none else text


def inherited_docs(owner: type) -> dict[str, str]:
    """Return {field: docstring below it} of a dataclass and the dataclasses it inherits from."""
    docs: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if is_dataclass(base):
            docs |= field_docs(base)
    return docs


@cache
def field_docs(owner: type) -> dict[str, str]:
    """Return {field: docstring below it} of the fields that the class itself defines."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)

    docs = {}
    for line, below in zip(tree.body, tree.body[1:], strict=False):
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
            continue
        value = below.value if isinstance(below, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            docs[line.target.id] = inspect.cleandoc(value.value)

    return docs


class SuggestingParser(argparse.ArgumentParser):
    """A parser whose first error is an unknown option, with the nearest option that it has."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Parse the command line, after a look for unknown options."""
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
    commands = _subcommand_parsers(parser)
    is_value = False  # the word before is an option that takes one value

    for place, word in enumerate(words):
        match = OPTION.match(word)
        if is_value:
            is_value = False
        elif match is not None:
            _refuse_unknown(match[0], parser)
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

    names: dict[str, str] = {}
    for name, action in options.items():
        if action.help != argparse.SUPPRESS:
            names[name.lstrip("-")] = name
    nearest = nearest_name(option.lstrip("-"), names)
    hint = f"did you mean {names[nearest]}?" if nearest else "--help lists the options"
    parser.error(f"unknown option {option}; {hint}")


def _subcommand_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return {name: parser} of the sub-commands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
