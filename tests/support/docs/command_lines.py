"""The command lines on a page, and whether its commands would take them."""

from __future__ import annotations

import argparse
import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docs.generator.commands import ROOT, Command, command_files, commands, module_of
from wenet_uio.base.messages import PACKAGE
from wenet_uio.bin import recognize, train
from wenet_uio.commands import COMMANDS, FIRST_WORDS, parser_of_command
from wenet_uio.config import load_config

FENCED = re.compile(r"^ *```(?:bash|sh|console|text)?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+ --[^`\n]+)`")
OVERRIDES = re.compile(r"`--override(?:_config)? ([^`\n]+)`")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
SEPARATORS = "();<>|&\n"
LEFT_OUT = ("…", "...", "[OPTIONS]")
"""Words in place of further ones."""
USUAL = ROOT / "examples/custom/s0"
"""The recipe of configs and folders that a page makes itself."""
YARDSTICK = ROOT / "examples/voices/s0"
"""The recipe of ablations."""
OF_TRANSDUCERS = re.compile("joint_conf|predictor_conf|transducer_")
"""Keys with which the recipe of own corpora takes the config of a transducer."""
OF_NEMO = re.compile(r"\+|trainer\.|model\.")


class Line(NamedTuple):
    """A command line."""

    words: list[str]
    is_whole: bool
    """False if words are left out, as in the midst of a sentence: required options may be missing,
    and the value of the last one.
    """


def lines_of(text: str) -> Iterator[Line]:
    """Yield the lines of a page that call commands of this project."""
    text = re.sub(r"\\\n\s*", " ", text)
    blocks = [(block, True) for form in (FENCED, INDENTED) for block in form.findall(text)]
    for block, is_whole in (*blocks, *((code, False) for code in INLINE.findall(text))):
        variables: dict[str, str] = {}
        for words in _calls(block):
            while words and (set_here := ASSIGNMENT.fullmatch(words[0])):
                variables[set_here[1]] = set_here[2]
                words = words[1:]
            words = [_expanded(word, variables) for word in words]
            if words and _takes(words) is not None:
                written = [word for word in words if word not in LEFT_OUT]
                yield Line(written, is_whole and len(written) == len(words))


def _calls(block: str) -> Iterator[list[str]]:
    """Yield the simple commands of shell code; of other text, lines that could be commands."""
    for text in (block, *block.splitlines()):
        lexer = shlex.shlex(text, posix=True, punctuation_chars=SEPARATORS)
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words: list[str] = []
        calls = [words]
        try:
            for token in lexer:
                if set(token) <= set(SEPARATORS):
                    words = []
                    calls.append(words)
                else:
                    words.append(token)
        except ValueError:  # a quote that does not end: no shell code
            continue
        yield from filter(None, map(_without_comment, calls))
        if text is block:
            return


def _without_comment(words: list[str]) -> list[str]:
    """Return the words before a comment, without a prompt."""
    comment = next((number for number, word in enumerate(words) if word.startswith("#")), None)
    words = words[:comment]
    return words[1:] if words[:1] == ["$"] else words


def _expanded(word: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda name: variables.get(name[1], name[0]), word)


Taking = Callable[[Line, Path], None]
"""Raises a ValueError if a command does not take a line of a page."""


def refusal(line: Line, page: Path) -> str:
    """Return why a command does not take a line; empty if it does."""
    taking = _takes(line.words)
    assert taking is not None
    try:
        taking(line, page)
    except ValueError as error:
        return str(error)
    return ""


def _takes(words: Sequence[str]) -> Taking | None:
    """Return what checks a line; None if its first words name no command of this project."""
    if words[0] == "wenet-uio" and len(words) > 1:
        count = 2 if words[1] in FIRST_WORDS else 1
        name = " ".join(words[1 : 1 + count])
        if name not in COMMANDS:
            return None
        return lambda line, page: _parse(
            parser_of_command(name), Line(line.words[1 + count :], line.is_whole), page
        )

    if list(words[:2]) == ["python", "-m"] and len(words) > 2:
        module = words[2].removeprefix("wenet_uio.")
        name = next((each for each, command in COMMANDS.items() if command.module == module), None)
        if name is None or not words[2].startswith("wenet_uio."):
            return None
        return lambda line, page: _parse(
            parser_of_command(name), Line(line.words[3:], line.is_whole), page
        )

    script = Path(words[0] if words[0] != "bash" or len(words) == 1 else words[1])
    first = 2 if words[0] == "bash" else 1
    if script.name == "run.sh" and (len(script.parts) == 1 or "examples" in script.parts):
        return lambda line, page: _check_shell(
            _recipe(script, page), Line(line.words[first:], line.is_whole), page
        )
    path = _tools().get(script.name)
    if path is None or (len(script.parts) > 1 and script.parent.name != "tools"):
        return None
    if path.suffix == ".sh":
        return lambda line, page: _check_shell(path, Line(line.words[first:], line.is_whole), page)
    return lambda line, page: _parse(_parser(path), Line(line.words[first:], line.is_whole), page)


@cache
def _tools() -> dict[str, Path]:
    return {path.name: path for path in command_files() if path.parent.name == "tools"}


@cache
def _parser(path: Path) -> argparse.ArgumentParser:
    return module_of(path).parser()


def _recipe(script: Path, page: Path) -> Path:
    """Return the run.sh that a page names: beside the page, in the clone, or one that it makes."""
    for path in (page.parent / script, ROOT / script):
        if path.is_file() and "examples" in path.parts:
            return path
    return USUAL / "run.sh"


def _parse(parser: argparse.ArgumentParser, line: Line, page: Path) -> None:
    """Parse the line of a Python command.

    Raises:
        ValueError: the command does not take it, or an override does not fit its config.
    """
    words = [re.sub(r"\$\{?\w+\}?|\$", "1", word) for word in line.words]
    if "--help" in words or not words:
        return

    if not line.is_whole and words[-1].startswith("--"):
        option = words.pop()
        if option not in parser._option_string_actions:
            raise ValueError(f"unknown option {option}")

    level, told = PACKAGE.level, io.StringIO()
    required = [action for action in parser._actions if action.required]
    try:
        for action in required:
            action.required = line.is_whole
        with redirect_stderr(told):
            args = parser.parse_args(words)
    except SystemExit as end:
        if end.code:
            raise ValueError(told.getvalue().splitlines()[-1]) from None
        return
    finally:
        PACKAGE.setLevel(level)
        for action in required:
            action.required = True

    after_launch = getattr(args, "training_script_args", [])
    if after_launch and args.training_script == "wenet_uio.bin.train":
        _parse(parser_of_command("train"), Line(after_launch, line.is_whole), page)
    elif getattr(args, "override_config", None):
        overrides = train.overrides(args) if hasattr(args, "train_engine") else args.override_config
        config = _config(args.config, page)
        is_of_nemo = config.parent != page.parent and any(map(OF_NEMO.match, overrides))
        if not is_of_nemo:  # such a yaml stands on the page itself
            load_config(config, overrides)


def _config(named: str | None, page: Path) -> Path:
    """Return the yaml that a page names, or the usual one if the page describes a yaml itself."""
    for folder in (page.parent, ROOT, USUAL):
        path = folder / (named or "conf/train_conformer.yaml")
        if path.is_file():
            return path
    return USUAL / "conf/train_conformer.yaml"


def _check_shell(path: Path, line: Line, page: Path) -> None:
    """Check the options of a recipe or of a shell script of tools/.

    Raises:
        ValueError: an option is unknown or lacks its value, a config is not there, or an override
            does not fit it.
    """
    (command,) = (each for each in commands_by_path() if ROOT / each.path == path)
    options = [option for group in command.groups.values() for option in group]
    known = {name: option.default for option in options for name in option.names}
    values: dict[str, str] = {}
    rest = list(line.words)
    rows = []
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--help" or not name.startswith("--"):
            rows.append(name + equals + value)
            continue
        if name not in known:
            raise ValueError(f"unknown option {name}")
        is_switch = known[name] in ("true", "false")
        if not equals and not (is_switch and (not rest or rest[0].startswith("--"))):
            if not rest and line.is_whole:
                raise ValueError(f"option {name} needs a value")
            value = rest.pop(0) if rest else known[name]
        if is_switch and value not in ("", "true", "false"):
            raise ValueError(f"{name} {value}: expected true or false")
        values[name] = value

    if path.name == "ablation.sh":
        for row in rows:
            check_row(row, page)
    elif "--override" in known:
        _check_override(path, values, known.get("--config", ""), page)
    if "--decode_options" in values:
        _parse(
            recognize.parser(), Line(shlex.split(values["--decode_options"]), is_whole=False), page
        )


def overrides_of(text: str) -> Iterator[list[str]]:
    """Yield the keys of each override that a sentence of a page names without its command."""
    for words in map(shlex.split, OVERRIDES.findall(text)):
        given = shlex.split(words[0]) if len(words) == 1 else words
        if all("=" in word and "$" not in word for word in given) and given != ["key=value"]:
            yield given


def config_that_takes(overrides: Sequence[str]) -> Path | None:
    """Return a config of the recipe of own corpora that an override fits; None if there is none."""
    for config in sorted(USUAL.glob("conf/*.yaml")):
        try:
            load_config(config, overrides)
        except ValueError:
            continue
        return config
    return None


@cache
def commands_by_path() -> list[Command]:
    """The commands of the manual, whose options take a second to find."""
    return commands()


def check_row(row: str, page: Path) -> None:
    """Check a row of an ablation: [NAME=]CONFIG[,KEY=VALUE…]."""
    if "*" in row or "$" in row.partition(",")[0]:
        return
    config, *overrides = re.split(r",(?![^\[]*\])", row)
    config = config.rpartition("=")[2]
    folder = page.parent if "examples" in page.parts else YARDSTICK
    _load(folder / config, [each for each in overrides if "$" not in each])


def _check_override(path: Path, values: dict[str, str], default: str, page: Path) -> None:
    """Check the config of a recipe, and its override."""
    folder = path.parent if path.name == "run.sh" else page.parent
    given = [word for word in shlex.split(values.get("--override", "")) if "$" not in word]
    config = values.get("--config", "")
    if not config and "--from" in values:
        config = "conf/finetune.yaml"
    config = config or default
    if config == "auto":
        chosen = (
            ("transducer",)
            if OF_TRANSDUCERS.search(" ".join(given))
            else ("transducer", "conformer")
        )
        configs = [folder / f"conf/train_{name}.yaml" for name in chosen]
    else:
        configs = [folder / config] if config and "$" not in config else []

    for each in configs:
        _load(each if each.is_file() else _config(config, page), given)


def _load(config: Path, overrides: Sequence[str]) -> None:
    try:
        load_config(config, overrides)
    except OSError as error:
        raise ValueError(f"{config}: {error.strerror}") from None
