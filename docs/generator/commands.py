"""Pages of the commands: of Python commands by argparse, of shell commands by the lines that set
their options.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from docs.generator.glossary import OPTIONS
from docs.generator.markdown import code, escaped, paragraphs, table
from wenet_uio.base.cli import value_name
from wenet_uio.base.imports import installed
from wenet_uio.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
OF_WENET = "Options of WeNet that are accepted"
"""Title of the options that the help does not show."""


@dataclass(frozen=True)
class Option:
    """One option of a command."""

    names: tuple[str, ...]
    """Such as --nj and --num_threads; of an argument without dashes, its name alone."""
    value: str = ""
    """What follows the name; empty for a switch."""
    default: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class Command:
    """A command that users start."""

    name: str
    """As it is typed, such as `plan_report.py`."""
    path: str
    """Its file, relative to the root."""
    text: str
    """What it does: a docstring, or the comment on top of a shell script."""
    groups: dict[str, list[Option]]
    """{title: options}; the title of the main options is empty."""

    @property
    def page(self) -> str:
        """Its page, relative to the page of all commands."""
        folder, name = Path(self.path).parts[-3:-1], Path(self.path).stem
        return f"recipes/{folder[0]}.md" if name == "run" else f"{folder[-1]}/{name}.md"


class _Cores(int):
    """Number of the cores of the reader's machine, where it is the default of an option."""

    def __repr__(self) -> str:
        return "number of cores"

    __str__ = __repr__


def command_files() -> list[Path]:
    """List the files of all commands: tools/, the commands of wenet_uio/bin that have no script there,
    and the recipes.

    lab/benchmark/ is no part of the manual: its README describes these programs, and they need
    packages of other projects.
    """
    scripts = {path.stem.replace("-", "_") for path in ROOT.glob("tools/*.py")}
    modules = sorted(ROOT.glob("wenet_uio/bin/*.py"))
    files = [path for path in modules if path.stem not in {"__init__", *scripts}]
    for path in (*sorted(ROOT.glob("tools/*.*")), *sorted(ROOT.glob("examples/*/*/run.sh"))):
        if path.suffix in (".py", ".sh") and path.read_bytes().startswith(b"#!"):
            files.append(path)
    return files


def commands() -> list[Command]:
    """Return all commands with their options, without those of add-ons that were taken away."""

    def described(path: Path) -> Command:
        return _shell_command(path) if path.suffix == ".sh" else _python_command(path)

    return [command for _, command in installed(command_files(), described)]


def module_of(path: Path) -> ModuleType:
    """Return the module that has `parser` and `main` of a Python command."""
    return import_module(f"wenet_uio.bin.{path.stem.replace('-', '_')}")


def _python_command(path: Path) -> Command:
    parent = path.parent.name
    name = f"python -m wenet_uio.bin.{path.stem}" if parent == "bin" else path.name
    with patch.object(os, "cpu_count", lambda: _Cores(1)):
        parser = module_of(path).parser()
    parser.prog = name
    groups = _groups_of(parser)
    if OF_WENET in groups:
        groups[OF_WENET] = groups.pop(OF_WENET)  # as the last

    text = (parser.description or "").replace("%(prog)s", name).replace("%%", "%")
    return Command(name, str(path.relative_to(ROOT)), text, groups)


def _groups_of(parser: argparse.ArgumentParser) -> dict[str, list[Option]]:
    """Return {title: options} of a parser, and of the parsers of its subcommands."""
    groups: dict[str, list[Option]] = {}
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                helps = {choice.dest: choice.help for choice in action._choices_actions}
                for name, below in action.choices.items():
                    groups[f"{name}: {helps.get(name) or ''}"] = _groups_of(below)[""]
            elif not isinstance(action, argparse._HelpAction):
                title = OF_WENET if action.help == argparse.SUPPRESS else _title_of(group)
                groups.setdefault(title, []).append(_option_of(action, parser))

    return groups


def _title_of(group: argparse._ArgumentGroup) -> str:
    """Return the title and the description of a group; nothing for the groups that every command
    has.
    """
    if group.title in ("positional arguments", "options"):
        return ""
    return ": ".join(text for text in (group.title, group.description) if text)


def _option_of(action: argparse.Action, parser: argparse.ArgumentParser) -> Option:
    names = tuple(action.option_strings)
    if action.help == argparse.SUPPRESS:
        reason = getattr(action, "reason", "")
        return Option(
            names, meaning=f"changes nothing or is refused: {reason}" if reason else "as in WeNet"
        )

    meaning = (action.help or "") % {**vars(action), "prog": parser.prog}
    default = "required" if action.required and names else _shown(action.default)
    value = _value_of(action)
    return Option(
        names or (value,), value if names else "", default, meaning.replace(f"{ROOT}/", "")
    )


def _value_of(action: argparse.Action) -> str:
    """Return what follows the name of an option, as the help shows it; of an argument its name."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"

    named = action.metavar or (value_name(action) if action.option_strings else action.dest)
    return " ".join(named) if isinstance(named, tuple) else str(named)


def _shown(default: object) -> str:
    """Return a default as it would be typed; nothing if it says nothing."""
    if default is None or default == argparse.SUPPRESS or isinstance(default, bool):
        return ""
    listed = default if isinstance(default, (list, tuple)) else [default]
    return " ".join(map(str, listed)).replace(f"{ROOT}/", "")


def _shell_command(path: Path) -> Command:
    lines = path.read_text(encoding="utf-8").splitlines()
    text = [line.removeprefix("#").removeprefix(" ") for line in _first_comment(lines)]
    groups = {"": list(_shell_options(lines))}
    names = {option.names[0] for option in groups[""]}

    for tool in re.findall(r"^ *with_options (\S+)", "\n".join(lines), re.MULTILINE):
        of_tool = (ROOT / "tools" / tool).read_text(encoding="utf-8").splitlines()
        more = [option for option in _shell_options(of_tool) if option.names[0] not in names]
        groups.setdefault(f"Options of {tool}", []).extend(more)
        names |= {option.names[0] for option in more}

    where = path.relative_to(ROOT)
    name = f"bash {where}" if path.name == "run.sh" else path.name
    kept = {title: options for title, options in groups.items() if options}
    return Command(name, str(where), inspect.cleandoc("\n".join(["", *_indented(text)])), kept)


def _first_comment(lines: list[str]) -> Iterator[str]:
    for line in lines[1:]:
        if not line.startswith("#"):
            return
        yield line


def _indented(text: list[str]) -> list[str]:
    """Turn lines of commands, indented by two blanks, into blocks of code.

    Stages of one line get semicolons.
    """
    listed = [
        line.replace("  ", "; ") + "." if line.startswith("Stages:") else line for line in text
    ]
    return [f"    {line[2:]}" if line.startswith("  ") else line for line in listed]


def _shell_options(lines: list[str]) -> Iterator[Option]:
    """Yield the lines `name=default # meaning` above parse_options; with a comment of several
    lines.
    """
    options: list[Option] = []
    for line in lines:
        if line.startswith("parse_options"):
            break
        if match := re.match(r"([a-z][a-z0-9_]*)=(.*?)(?:\s+# (.*))?$", line):
            name, default, meaning = match.groups()
            meaning = meaning or OPTIONS.get(name, "")
            options.append(Option((f"--{name}",), "VALUE", default.strip("\"'"), meaning))
        elif options and (more := re.match(r"\s+# (.*)$", line)):
            last = options.pop()
            options.append(
                Option(last.names, last.value, last.default, f"{last.meaning} {more[1]}")
            )

    yield from options


def command_page(command: Command) -> str:
    """Return the page of a command."""
    parts = [
        f"# {command.name.removeprefix('python -m ').removeprefix('bash ')}",
        paragraphs(command.text),
    ]
    parts.append(
        f"Start it as `{command.name}`{_short_name(command)}. Its file is `{command.path}`."
    )
    for title, options in command.groups.items():
        parts.append(f"## {escaped(title[:1].upper() + title[1:]) or 'Options'}")
        rows = [
            [
                " ".join(code(name) for name in option.names),
                code(option.value),
                code(option.default),
                escaped(option.meaning),
            ]
            for option in options
        ]
        parts.append(table(("option", "value", "default", "meaning"), rows))

    return "\n\n".join(parts) + "\n"


def _short_name(command: Command) -> str:
    """Return how `pip install .` names the command, if it does."""
    path = Path(command.path)
    module = f"{path.parent.name}.{path.stem.replace('-', '_')}"
    names = [name for name, each in COMMANDS.items() if each.module == module]
    return f", or after `pip install .` as `wenet-uio {names[0]}`" if names else ""


def index_page(commands_of_project: list[Command]) -> str:
    """Return the page that lists all commands."""
    kinds = {
        "wenet_uio/bin/": "Training and decoding",
        "tools/": "Data, checks and scoring",
        "examples/": "Recipes",
    }
    parts = [
        "# Commands",
        "`. ./path.sh` in the root puts `tools/` on `PATH` and the package on `PYTHONPATH`. "
        "Every command has `--help`. An option of a shell command needs a value: `--name value` or "
        "`--name=value`; one that is true or false alone is true.",
    ]
    for folder, title in kinds.items():
        rows = [
            [f"[`{command.name}`]({command.page})", paragraphs(command.text).split("\n\n")[0]]
            for command in commands_of_project
            if command.path.startswith(folder)
        ]
        parts += [f"## {title}", table(("command", "what it does"), rows)]

    return "\n\n".join(parts) + "\n"
