"""The command wenet-uio."""

import re
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from wenet_uio import __main__

ROOT = Path(__file__).resolve().parents[1]


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["wenet-uio", *arguments])
    with pytest.raises(SystemExit) as end:
        __main__.main()
    return end.value.code


@pytest.mark.parametrize("name", __main__.COMMANDS)
def test_every_sub_command_explains_its_options(name, monkeypatch, capsys):
    assert call(monkeypatch, *name.split(), "--help") == 0
    assert f"usage: wenet-uio {name}" in capsys.readouterr().out or name == "launch"


def test_without_a_sub_command_the_sub_commands_are_listed(monkeypatch, capsys):
    for arguments, status in (((), 2), (("--help",), 0), (("export",), 0)):
        assert call(monkeypatch, *arguments) == status
        said = capsys.readouterr().out
        assert [name for name in __main__.COMMANDS if f"  {name} " not in said] == []


@pytest.mark.parametrize("wrong", ["transcrbe", "export zip"])
def test_an_unknown_sub_command_is_an_error_that_lists_the_known_ones(wrong, monkeypatch, capsys):
    assert call(monkeypatch, *wrong.split()) == 2
    assert f"error: wenet-uio {wrong}: unknown command\n" in capsys.readouterr().err


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
