"""An unknown option is the first error of a command, with the option that was probably meant."""

import argparse
import sys
from itertools import cycle

import pytest

from wenet_uio import __main__
from wenet_uio.base.options import SuggestingParser, refuse_unknown_options
from wenet_uio.commands import COMMANDS, parser_of_command


def options_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> list[tuple]:
    """(words before it, option) of each option that the help of a parser shows."""
    options = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                options += options_of(below, (*words, name))
        elif action.help != argparse.SUPPRESS:
            options += [(words, name) for name in action.option_strings if name[:2] == "--"]
    return options


def misspelt(option: str) -> str:
    middle = max(3, (len(option) + 2) // 2)
    return f"{option[:middle]}{option[middle - 1]}{option[middle:]}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_names_the_nearest_of_all_its_options(name, monkeypatch, capsys):
    options = options_of(parser_of_command(name))
    assert len(options) > 1
    for (words, option), form in zip(options, cycle(["{}", "{}=1"]), strict=False):
        wrong = misspelt(option)
        command = ["wenet-uio", *name.split(), *words, form.format(wrong), "1"]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as end:
            __main__.main()
        assert end.value.code == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.endswith(f"error: unknown option {wrong}; did you mean {option}?")


@pytest.fixture
def parser():
    parser = SuggestingParser(prog="command")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--config", required=True)
    parser.add_argument("--batch_size", "-b", type=int)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--keys", nargs="+")
    parser.add_argument("--old", help=argparse.SUPPRESS)
    return parser


@pytest.mark.parametrize(
    "words",
    [
        ("--config", "a", "file", "-"),
        ("--conf", "a", "--batch", "3", "-b4"),
        ("--config=a", "--batch_size=-1", "-b=3", "--old", "1"),
        ("--config", "a", "--batch_size", "-3", "--keys", "a", "-1", "--fast"),
        ("--config", "a", "--", "--nothing", "-x"),
        ("--config", "-- a text", "a --nothing"),
    ],
)
def test_words_that_argparse_takes_are_taken(parser, words):
    plain = argparse.ArgumentParser(parents=[parser], add_help=False)
    assert parser.parse_args(words) == plain.parse_args(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch-size", "3"), "unknown option --batch-size; did you mean --batch_size?"),
        (("-config", "a"), "unknown option -config; did you mean --config?"),
        (("--CONFIG=a b",), "unknown option --CONFIG; did you mean --config?"),
        (("--keys", "a", "--fsat"), "unknown option --fsat; did you mean --fast?"),
        (("--olld",), "unknown option --olld; --help lists the options"),
        (("--xyzzy",), "unknown option --xyzzy; --help lists the options"),
        (("--fast",), "the following arguments are required: --config"),
        (("--config", "--fsat"), "argument --config: expected one argument"),
    ],
)
def test_an_option_that_argparse_refuses_is_named_with_the_nearest(parser, words, message, capsys):
    with pytest.raises(SystemExit) as end:
        parser.parse_args(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"command: error: {message}"


def test_options_of_a_command_behind_the_options_are_its_own():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    for words in (["a.py", "--nothing"], ["--ranks", "2", "--fast", "a.py", "--rank", "-x"]):
        refuse_unknown_options(parser, words)
    with pytest.raises(SystemExit):
        refuse_unknown_options(parser, ["--ranks", "2", "--fsat", "a.py"])
