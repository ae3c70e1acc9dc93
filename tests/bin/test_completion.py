"""The scripts that complete wenet-uio, run by the shells."""

from __future__ import annotations

import argparse
import os
import pty
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from wenet_uio.bin import completion
from wenet_uio.commands import COMMANDS, parser_of_command

FILES = {"bash": "wenet-uio", "zsh": "_wenet-uio", "fish": "wenet-uio.fish"}
"""{shell: name of its script, as the help of the command has it}."""
STARTS = {
    "bash": "bash --norc --noprofile -i",
    "zsh": "zsh -f -i",
    "fish": "fish --no-config",
}
SOURCED = {
    "bash": "PS1=; bind 'set bell-style none'; source {script}; wenet-uio() {{ printf '<%s>' \"$@\"; echo; }}",
    "zsh": "PS1= ; unsetopt zle_bracketed_paste; fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D;"
    " wenet-uio() {{ printf '<%s>' \"$@\"; echo; }}",
}
WORDS = """\
source "$1"
compopt() { :; }
while IFS= read -r line; do
  IFS=$'\\t' read -ra COMP_WORDS <<<"$line"
  [[ $line != *$'\\t' ]] || COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _shtab_wenet_uio
  echo "${COMPREPLY[*]}"
done
"""
"""Completes each line, words with tabs between, as bash would."""


@pytest.fixture(scope="module")
def parsers() -> dict[str, argparse.ArgumentParser]:
    """{command: its parser}; of a command that has sub-commands, theirs."""
    every = {}
    for name in COMMANDS:
        parser = parser_of_command(name)
        below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        for action in below:
            every |= {f"{name} {word}": its for word, its in action.choices.items()}
        if not below:
            every[name] = parser
    return every


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (
        action
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    )


def words_of(action: argparse.Action) -> list[str]:
    """The words that the help of an option lists, to choose from."""
    if action.choices is not None:
        return [str(each) for each in action.choices]
    if isinstance(action.metavar, str) and action.metavar.startswith("{"):
        return action.metavar.strip("{}").split(",")
    return []


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Return a function that gives the script of a shell; skips without the shell."""
    folder = tmp_path_factory.mktemp("completion")

    def written(shell: str) -> Path:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        path = folder / FILES[shell]
        with open(path, "w", encoding="utf-8") as file, redirect_stdout(file):
            completion.main([shell])
        return path

    return written


def typed(shell: str, script: Path, folder: Path, *lines: str) -> list[list[str]]:
    """Type lines in an interactive shell, where \\t is TAB; the words that wenet-uio gets of each."""
    source = SOURCED[shell].format(
        script=shlex.quote(str(script)), folder=shlex.quote(str(script.parent))
    )
    ours, its = pty.openpty()
    process = subprocess.Popen(
        shlex.split(STARTS[shell]),
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=folder,
        env={**os.environ, "TERM": "dumb", "HISTFILE": "", "LC_ALL": "C.UTF-8", "COLUMNS": "500"},
        start_new_session=True,
    )
    os.close(its)
    os.write(ours, "\n".join([source, *lines, "exit", ""]).encode())
    printed = b""
    while True:
        try:
            printed += os.read(ours, 65536)
        except OSError:  # the shell has ended
            break

    process.wait(60)
    os.close(ours)
    rows = re.findall(r"^<.*>\r*$", printed.decode(), re.MULTILINE)
    return [re.findall(r"<([^<>]*)>", row) for row in rows]


@pytest.mark.parametrize("shell", FILES)
def test_a_shell_accepts_its_script(shell, script):
    done = subprocess.run([shell, "-n", script(shell)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bash_completes_every_command_option_and_choice_without_a_program(
    parsers, script, tmp_path
):
    (tmp_path / "a_file").touch()
    asked = {
        "wenet-uio\t": " ".join(dict.fromkeys(name.split()[0] for name in COMMANDS)),
        "wenet-uio\t--": "--help --version",
    }
    for name, parser in parsers.items():
        words = "\t".join(["wenet-uio", *name.split()])
        names = [each for option in options_of(parser) for each in option.option_strings]
        asked[f"{words}\t--"] = " ".join(each for each in names if each.startswith("--"))
        for option in options_of(parser):
            choices = words_of(option)
            takes_file = option.type in (None, str, Path) and not choices
            if option.nargs != 0:
                for each in option.option_strings:
                    asked[f"{words}\t{each}\t"] = "a_file" if takes_file else " ".join(choices)

    assert len(asked) > 500
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", WORDS, "bash", script("bash")],
        env={"PATH": "/nothing"},
        cwd=tmp_path,
        input="".join(f"{line}\n" for line in asked),
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    answers = dict(zip(asked, done.stdout.splitlines(), strict=True))
    assert {line: answers[line] for line in asked if answers[line] != asked[line]} == {}


def test_a_tab_in_bash_completes_words_and_names_of_files(script, tmp_path):
    (tmp_path / "my data.list").touch()
    (tmp_path / "语音").mkdir()
    (tmp_path / "语音" / "a.list").touch()
    recipes = sorted(name.split()[1] for name in COMMANDS if name.startswith("recipe "))
    all_of_them = "\x1b*"  # inserts all completions
    lines = {
        "wenet-uio transc\t": ["transcribe"],
        "wenet-uio exp\tonn\t": ["export", "onnx"],
        f"wenet-uio recipe {all_of_them}": ["recipe", *recipes],
        f"wenet-uio check my\t--data_type {all_of_them}": [
            "check", "my data.list", "--data_type", "raw", "shard"
        ],
        "wenet-uio check --data_t\tsh\t": ["check", "--data_type", "shard"],
        "wenet-uio check 语\ta\t": ["check", "语音/a.list"],
        "wenet-uio check --config=my\t": ["check", "--config=my data.list"],
        "wenet-uio plan --epoch \t3": ["plan", "--epoch", "3"],
        "wenet-uio nonsense \t": ["nonsense"],
        "wenet-uio completion f\t": ["completion", "fish"],
    }  # fmt: skip
    assert typed("bash", script("bash"), tmp_path, *lines) == list(lines.values())


def test_a_tab_in_zsh_completes_words_and_names_of_files(script, tmp_path):
    (tmp_path / "my data.list").touch()
    lines = {
        "wenet-uio transc\t": ["transcribe"],
        "wenet-uio recipe ho\t": ["recipe", "home"],
        "wenet-uio check my\t": ["check", "my data.list"],
        "wenet-uio check --data_t\tsh\t": ["check", "--data_type", "shard"],
        "wenet-uio check --config my\t": ["check", "--config", "my data.list"],
        "wenet-uio completion f\t": ["completion", "fish"],
    }
    assert typed("zsh", script("zsh"), tmp_path, *lines) == list(lines.values())


def test_fish_completes_every_command_option_and_choice(parsers, script, tmp_path):
    asked = {"wenet-uio ": {name.split()[0] for name in COMMANDS}}
    for name, parser in parsers.items():
        names = [each for option in options_of(parser) for each in option.option_strings]
        asked[f"wenet-uio {name} --"] = {each for each in names if each.startswith("--")}
        for option in options_of(parser):
            if choices := words_of(option):
                asked[f"wenet-uio {name} {option.option_strings[0]} "] = set(choices)

    program = f"source {shlex.quote(str(script('fish')))}\n" + "".join(
        f"echo '= {line}'; complete -C '{line}'\n" for line in asked
    )
    done = subprocess.run(
        ["fish", "--no-config"], input=program, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stderr == ""
    answers = {
        part.split("\n")[0]: {line.split("\t")[0] for line in part.split("\n")[1:] if line}
        for part in re.split(r"(?m)^= ", done.stdout)[1:]
    }
    assert {line: answers[line] for line in asked if answers[line] != asked[line]} == {}
