"""Options of commands from dataclasses: flags, types, defaults and help."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

import pytest

from wenet_uio.base.cli import command_parser
from wenet_uio.base.options import (
    add_options,
    field_docs,
    option,
    option_help,
    positive_int,
    values_of,
)


@dataclass(frozen=True)
class Base:
    """A base."""

    beam: int = 10
    """Hypotheses that are kept."""


@dataclass(frozen=True)
class Options(Base):
    """Options."""

    weight: float | None = None
    """CTC: 50 % of `this`; None: as trained."""
    unit: Literal["token", "word"] = "token"
    """Units."""
    fast: bool = False
    """Be fast."""
    penalty: float = option(0.0, flag="--length_penalty", others=["--punish"])
    """Penalty."""
    channel: int | str = option(0, parse=lambda text: text if text == "mix" else int(text))
    """WebSockets."""
    mode: str = option("one", choices=("one", "two"))
    """Mode."""


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = command_parser(None)
    add_options(parser, Options)
    return parser


def test_without_options_the_fields_have_their_defaults(parser):
    assert Options(**values_of(Options, parser.parse_args([]))) == Options()


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        (["--beam", "3"], "beam", 3),
        (["--weight", "0.5"], "weight", 0.5),
        (["--unit", "word"], "unit", "word"),
        (["--fast"], "fast", True),
        (["--length_penalty", "1"], "penalty", 1.0),
        (["--punish", "1"], "penalty", 1.0),
        (["--channel", "mix"], "channel", "mix"),
        (["--channel", "2"], "channel", 2),
        (["--mode", "two"], "mode", "two"),
    ],
)
def test_an_option_sets_its_field(parser, given, field, value):
    assert getattr(Options(**values_of(Options, parser.parse_args(given))), field) == value


@pytest.mark.parametrize("given", [["--unit", "phone"], ["--mode", "three"], ["--beam", "many"]])
def test_a_value_outside_the_type_is_refused(parser, given, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(given)
    assert given[0] in capsys.readouterr().err


def test_the_help_is_the_docstring_with_the_default(parser):
    text = " ".join(parser.format_help().split())
    assert "hypotheses that are kept (default: 10)" in text
    assert "CTC: 50 % of this (default: as trained)" in text
    assert "WebSockets (default: 0)" in text
    assert "be fast" in text
    assert "--length_penalty, --punish X" in text


def test_only_the_named_fields_become_options():
    parser = argparse.ArgumentParser()
    add_options(parser, Options, "beam", "fast")
    assert vars(parser.parse_args([])) == {"beam": 10, "fast": False}


def test_a_field_without_an_option_is_no_silent_default():
    parser = argparse.ArgumentParser()
    add_options(parser, Options, "beam")
    with pytest.raises(AttributeError, match="fast"):
        values_of(Options, parser.parse_args([]), "beam", "fast")


def test_help_of_keeps_names_as_they_are():
    assert option_help("OpenAI's limit.") == "OpenAI's limit"
    assert option_help("A limit; None: none.") == "a limit (default: none)"


def test_field_docs_are_those_of_the_class_itself():
    assert "beam" not in field_docs(Options)
    assert field_docs(Base) == {"beam": "Hypotheses that are kept."}


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "many", ""])
def test_a_number_below_one_is_an_error_of_its_option(text, capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=positive_int)
    assert parser.parse_args(["--jobs", "12"]).jobs == 12
    with pytest.raises(SystemExit):
        parser.parse_args([f"--jobs={text}"])
    assert f"argument --jobs: expected 1 or more, found {text}\n" in capsys.readouterr().err
