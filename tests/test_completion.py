"""The scripts that complete wenet-uio, run by the shells."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from wenet_uio.commands import COMMANDS, parser_of_command
from wenet_uio.completion import SCRIPTS, Completed, completed
from wenet_uio.tools import completion

STARTS = {
    "bash": "bash --norc --noprofile -i",
    "zsh": "zsh -f -i",
    "fish": "fish --no-config",
}
SOURCED = {
    "bash": "PS1=; bind 'set bell-style none'; source {script}; wenet-uio() {{ printf '<%s>' \"$@\"; echo; }}",
    "zsh": "PS1= ; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; source {script};"
    " wenet-uio() {{ printf '<%s>' \"$@\"; echo; }}",
}
WORDS = """\
source "$1"
compopt() { COMPREPLY=("files"); }
while IFS= read -r line; do
  IFS=$'\\t' read -ra COMP_WORDS <<<"$line"
  [[ $line != *$'\\t' ]] || COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _wenet_uio
  echo "${COMPREPLY[*]}"
done
"""
"""Completes each line, words with tabs between, as bash would; `files` where bash lists files."""


@pytest.fixture(scope="module")
def table() -> dict[str, Completed]:
    """{command: what completes it}."""
    every = {}
    for name, command in COMMANDS.items():
        every |= completed(name, command.purpose, parser_of_command(name))
    return every


@pytest.fixture(scope="module")
def script(table, tmp_path_factory):
    """Return a function that gives the script of a shell; skips without the shell."""
    folder = tmp_path_factory.mktemp("completion")

    def written(shell: str) -> Path:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        path = folder / f"wenet-uio.{shell}"
        path.write_text(SCRIPTS[shell](table), encoding="utf-8")
        return path

    return written


def typed(shell: str, script: Path, folder: Path, *lines: str) -> list[list[str]]:
    """Type lines in an interactive shell, where \\t is TAB; the words that wenet-uio gets of each."""
    source = SOURCED[shell].format(script=shlex.quote(str(script)))
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


def test_the_command_prints_the_script_of_the_shell(table, monkeypatch, capsys):
    for shell, make in SCRIPTS.items():
        monkeypatch.setattr("sys.argv", ["wenet-uio completion", shell])
        completion.main()
        assert capsys.readouterr().out == make(table)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_accepts_its_script(shell, script):
    path = script(shell)
    assert "@" not in re.sub(r"\$@|@\d|[^\s@]+@[^\s@]+", "", path.read_text()), "an unfilled place"
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bash_completes_every_command_option_and_choice_without_a_program(table, script):
    asked: dict[str, str] = {
        "wenet-uio\t": " ".join(
            [*dict.fromkeys(name.split()[0] for name in table), "--help", "--version"]
        )
    }
    for name, command in table.items():
        words = "\t".join(["wenet-uio", *name.split()])
        asked[f"{words}\t--"] = " ".join(
            each for option in command.options for each in option.names if each.startswith("--")
        )
        for option in command.options:
            for each in option.names:
                value = {"file": "files", "number": "", "word": " ".join(option.value.words)}
                if option.value.takes != "nothing":
                    asked[f"{words}\t{each}\t"] = value[option.value.takes]
                    asked[f"{words}\t--quiet\t{each}\t=\t"] = value[option.value.takes]

    assert len(asked) > 500
    done = subprocess.run(
        [shutil.which("bash") or "bash", "-c", WORDS, "bash", script("bash")],
        env={"PATH": "/nothing"},
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
        f"wenet-uio check my\t--data_type={all_of_them}": [
            "check", "my data.list", "--data_type=raw", "shard"
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
        "wenet-uio check --data_t\tsh\t": ["check", "--data_type=shard"],
        "wenet-uio check --config my\t": ["check", "--config", "my data.list"],
        "wenet-uio check --config=my\t": ["check", "--config=my data.list"],
        "wenet-uio completion f\t": ["completion", "fish"],
    }
    assert typed("zsh", script("zsh"), tmp_path, *lines) == list(lines.values())


def test_fish_completes_every_command_option_and_choice(table, script, tmp_path):
    asked = {"wenet-uio ": {name.split()[0] for name in table}}
    for name, command in table.items():
        long = {each for option in command.options for each in option.names if each[:2] == "--"}
        asked[f"wenet-uio {name} --"] = long
        for option in command.options:
            if option.value.words:
                asked[f"wenet-uio {name} {option.names[0]} "] = set(option.value.words)

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
