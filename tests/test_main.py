"""The command wenet-uio."""

import argparse
import re
import runpy
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from wenet_uio import __main__, __version__
from wenet_uio.base.cli import value_name
from wenet_uio.base.options import positive_int
from wenet_uio.commands import COMMANDS, parser_of_command

ROOT = Path(__file__).resolve().parents[1]
OWN = [name for name in COMMANDS if name != "launch"]
"""Commands whose options are ours, not those of torchrun."""


def options_with_values(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Options of a parser and of its sub-parsers, without those that take no value."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options_with_values(below)
        elif action.option_strings and action.nargs != 0 and action.help != argparse.SUPPRESS:
            yield action


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["wenet-uio", *arguments])
    with pytest.raises(SystemExit) as end:
        __main__.main()
    return end.value.code


@pytest.mark.parametrize("name", COMMANDS)
def test_every_sub_command_explains_its_options(name, monkeypatch, capsys):
    assert call(monkeypatch, *name.split(), "--help") == 0
    assert f"usage: wenet-uio {name}" in capsys.readouterr().out or name == "launch"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_at_most_80_columns_and_an_example(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = parser_of_command(name).format_help()
    assert name not in OWN or [line for line in text.splitlines() if len(line) > 80] == []
    assert f"\n    wenet-uio {name}" in text


@pytest.mark.parametrize(
    "path",
    sorted(path for path in ROOT.glob("wenet_uio/bin/*.py") if path.stem != "__init__"),
    ids=lambda path: f"{path.parent.name}.{path.stem}",
)
def test_every_module_of_a_command_is_run_by_python_m(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")  # as -m does, without its warning
    assert not end.value.code

    module = f"{path.parent.name}.{path.stem}"
    said = " ".join(capsys.readouterr().out.split())
    assert f"usage: python -m wenet_uio.{module} " in said or module == "bin.launch"
    prints_data = [each.prints_data for each in COMMANDS.values() if each.module == module]
    assert prints_data == ["run(main, prints_data=True)" in path.read_text()]


@pytest.mark.parametrize("name", OWN)
def test_every_option_says_what_it_is_its_default_and_its_unit_in_one_form(name):
    made = parser_of_command(name)
    style = made._get_formatter()
    for action in options_with_values(made):
        text, option = style._get_help_string(action), action.option_strings[0]
        assert text, option
        assert action.required or text.count("(default: ") == 1, option
        assert f"({action.default})" not in text, option
        if action.type in (int, float, positive_int) and action.choices is None:
            assert style._metavar_formatter(action, value_name(action))(1)[0] in (
                "N",
                "X",
                "SECONDS",
                "BYTES",
                "FRAMES",
                "HZ",
                "DB",
            ), option
            assert "(seconds)" not in text, option


def test_the_table_of_the_commands_has_each_and_its_script():
    rows = re.findall(
        r"^\| `([^`]+)` \| (?:`(.+)`|–) \| (.+) \|$",
        (ROOT / "wenet_uio/bin/README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert {name: purpose for name, _, purpose in rows} == {
        name: command.purpose for name, command in COMMANDS.items()
    }
    for name, script, _ in rows:
        if script.startswith("tools/"):
            text = (ROOT / script).read_text(encoding="utf-8")
            assert f'"""`wenet-uio {name}` for recipes."""' in text
            assert f"from wenet_uio.{COMMANDS[name].module} import main\n" in text
            assert ("prints_data=True" in text) == COMMANDS[name].prints_data
        elif script:
            assert script == f"wenet_uio/{COMMANDS[name].module.replace('.', '/')}.py"


def test_every_script_of_the_tools_is_a_command():
    named = (ROOT / "wenet_uio/bin/README.md").read_text(encoding="utf-8")
    scripts = [path.name for path in ROOT.glob("tools/*.py")]
    assert len(scripts) > 20
    # check_requirements.py also runs on a Python that is too old for the package.
    assert [name for name in scripts if f"| `tools/{name}` |" not in named] == [
        "check_requirements.py"
    ]


def test_the_version_is_printed(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"wenet_uio {__version__}\n"


def test_without_a_sub_command_the_sub_commands_are_listed(monkeypatch, capsys):
    for arguments, status in (
        ((), 2),
        (("--help",), 0),
        (("export",), 0),
        (("recipe", "--help"), 0),
    ):
        assert call(monkeypatch, *arguments) == status
        said = capsys.readouterr().out
        assert [name for name in COMMANDS if f"  {name} " not in said] == []


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("transcrbe", "did you mean transcribe?"),
        ("export onx", "did you mean export onnx?"),
        ("recipe ne", "did you mean recipe new?"),
        ("make_shard_list", "did you mean pack?"),
        ("xyzzy", "wenet-uio --help lists the commands"),
    ],
)
def test_an_unknown_sub_command_is_an_error_of_one_line_with_the_nearest(
    wrong, hint, monkeypatch, capsys
):
    assert call(monkeypatch, *wrong.split()) == 2
    assert capsys.readouterr().err == f"error: wenet-uio {wrong}: unknown command; {hint}\n"


def test_an_error_of_a_sub_command_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "transcribe", "--model", "none", "--device", "cpu", "a.wav") == 1
    assert capsys.readouterr().err == "error: none: no such file or folder\n"


def test_the_metadata_of_the_project_names_the_command():
    scripts = re.findall(
        r'^wenet-uio = "(.+):(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert scripts == [("wenet_uio.__main__", "main")]
    assert not [
        each
        for each in entry_points(group="console_scripts", name="wenet-uio")
        if each.value != ":".join(scripts[0])
    ]
