"""Scripts that complete the command `wenet-uio` in bash, zsh and fish.

The parsers of all commands are read once, when a script is written. At a TAB the shell runs the
script alone, without Python.
"""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

MEANING = 72
"""Characters of the meaning that zsh and fish show beside an option."""
Takes = Literal["nothing", "word", "number", "file"]


@dataclass(frozen=True)
class Value:
    """What an option or an argument takes."""

    takes: Takes
    words: tuple[str, ...] = ()
    """The words to choose from, if it takes one of them."""


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    names: tuple[str, ...]
    value: Value
    meaning: str


@dataclass(frozen=True)
class Completed:
    """What completes the words after the name of a command."""

    purpose: str
    options: tuple[Option, ...]
    argument: Value
    """What it takes without an option."""


def completed(name: str, purpose: str, parser: argparse.ArgumentParser) -> dict[str, Completed]:
    """Return {name: what completes it} of a command, or of its sub-commands if it has such."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            purposes = {below.dest: below.help or "" for below in action._choices_actions}
            return {
                f"{name} {below}": _completed(purposes.get(below, purpose), its_parser)
                for below, its_parser in action.choices.items()
            }

    return {name: _completed(purpose, parser)}


def _completed(purpose: str, parser: argparse.ArgumentParser) -> Completed:
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    options = tuple(
        Option(
            tuple(dict.fromkeys(action.option_strings)), _value(action), _meaning(action, parser)
        )
        for action in shown
        if action.option_strings
    )
    arguments = [_value(action) for action in shown if not action.option_strings]
    return Completed(purpose, options, arguments[0] if arguments else Value("nothing"))


def _value(action: argparse.Action) -> Value:
    named = re.fullmatch(r"\{(.+)\}", action.metavar) if isinstance(action.metavar, str) else None
    if action.nargs == 0:
        return Value("nothing")
    if action.choices is not None:
        return Value("word", tuple(map(str, action.choices)))
    if named:
        return Value("word", tuple(named[1].split(",")))

    return Value("number" if action.type in (int, float) else "file")


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return textwrap.shorten(text, MEANING, placeholder=" …")


def _first_words(commands: dict[str, Completed]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return {first word: (purpose, {second word: purpose})}."""
    words: dict[str, tuple[str, dict[str, str]]] = {}
    for name, command in commands.items():
        first, _, second = name.partition(" ")
        purposes = words.setdefault(first, ("" if second else command.purpose, {}))[1]
        if second:
            purposes[second] = command.purpose

    return {
        first: (purpose or ", ".join(below), below) for first, (purpose, below) in words.items()
    }


BASH = """\
# Completes wenet-uio in bash: a file of ~/.local/share/bash-completion/completions named wenet-uio.

_wenet_uio() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]-} first=2 takes=file words='' options='' word
  COMPREPLY=()

  # bash cuts --option=value into three words.
  if [[ $current == = ]]; then
    current=''
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi

  case $command in
    @FIRST_OF_TWO@)
      first=3
      ((COMP_CWORD < first)) || command+=" ${COMP_WORDS[2]}"
      ;;
  esac

  if ((COMP_CWORD < first)); then
    takes=word
    case "$COMP_CWORD $command" in
      1\\ *) words="@FIRST_WORDS@ --help --version" ;;
@SECOND_WORDS@
    esac
  else
    case $command in
@COMMANDS@
      *) return ;;
    esac
    case "$command $previous" in
@VALUES@
      *)
        if [[ $current == -* || $takes == nothing ]]; then
          takes=word words=$options
        fi
        ;;
    esac
  fi

  case $takes in
    word)
      while read -r word; do
        COMPREPLY+=("$word")
      done < <(compgen -W "$words" -- "$current")
      ;;
    file) compopt -o default ;;
  esac
}

complete -F _wenet_uio wenet-uio
"""


def bash_script(commands: dict[str, Completed]) -> str:
    """Return the script of bash."""
    first_words = _first_words(commands)
    pairs = {first: below for first, (_, below) in first_words.items() if below}
    return _filled(
        BASH,
        FIRST_OF_TWO=" | ".join(pairs),
        FIRST_WORDS=" ".join(first_words),
        SECOND_WORDS=[
            f'      2\\ {first}) words="{" ".join(below)}" ;;' for first, below in pairs.items()
        ],
        COMMANDS=[
            f"      {shlex.quote(name)}) takes={command.argument.takes}"
            f' words="{" ".join(command.argument.words)}" options="{_all_names(command)}" ;;'
            for name, command in commands.items()
        ],
        VALUES=[
            f"      {patterns}) takes={value.takes} words={shlex.quote(' '.join(value.words))} ;;"
            for patterns, value in _values(commands)
        ],
    )


def _all_names(command: Completed) -> str:
    return " ".join(name for option in command.options for name in option.names)


def _values(commands: dict[str, Completed]) -> Iterator[tuple[str, Value]]:
    """Yield a pattern of `command option`, and the value that the option takes."""
    for name, command in commands.items():
        for option in command.options:
            if option.value.takes != "nothing":
                yield (
                    " | ".join(shlex.quote(f"{name} {spelling}") for spelling in option.names),
                    option.value,
                )


ZSH = """\
#compdef wenet-uio
# Completes wenet-uio in zsh: a file of a folder of $fpath, named _wenet-uio.

_wenet_uio() {
  local command=${words[2]-}
  local -i first=3
  local -a names

  case $command in
    @FIRST_OF_TWO@)
      first=4
      ((CURRENT < first)) || command+=" ${words[3]}"
      ;;
  esac

  if ((CURRENT < first)); then
    case "$CURRENT $command" in
      2\\ *) names=(@FIRST_WORDS@) ;;
@SECOND_WORDS@
    esac
    _describe command names
    return
  fi

  shift $((first - 2)) words
  ((CURRENT -= first - 2))
  case $command in
@COMMANDS@
  esac
}

if [[ ${funcstack[1]-} == _wenet-uio ]]; then
  _wenet_uio "$@"
else
  compdef _wenet_uio wenet-uio
fi
"""


def zsh_script(commands: dict[str, Completed]) -> str:
    """Return the script of zsh."""
    first_words = _first_words(commands)
    pairs = {first: below for first, (_, below) in first_words.items() if below}
    described = {first: purpose for first, (purpose, _) in first_words.items()}
    return _filled(
        ZSH,
        FIRST_OF_TWO=" | ".join(pairs),
        FIRST_WORDS=_described(described | {"--help": "list the commands", "--version": "version"}),
        SECOND_WORDS=[
            f"      3\\ {first}) names=({_described(below)}) ;;" for first, below in pairs.items()
        ],
        COMMANDS=[
            "\n".join(
                [f"    {shlex.quote(name)})", "      _arguments \\", *_zsh_arguments(command)]
            )
            for name, command in commands.items()
        ],
    )


def _described(purposes: dict[str, str]) -> str:
    return " ".join(
        shlex.quote(f"{name}:{purpose.replace(':', chr(92) + ':')}")
        for name, purpose in purposes.items()
    )


def _zsh_arguments(command: Completed) -> Iterator[str]:
    """Yield the lines of `_arguments`, which end the case."""
    for option in command.options:
        meaning = re.sub(r"([\[\]:\\])", r"\\\1", option.meaning)
        for name in option.names:
            action = _zsh_action(option.value, name.lstrip("-"))
            equals = "=" if action and name.startswith("--") else ""
            spec = f"*{name}{equals}[{meaning}]{action}"
            yield f"        {shlex.quote(spec)} \\"

    if command.argument.takes == "nothing":
        yield "        && return ;;"
    else:
        yield f"        {shlex.quote('*' + _zsh_action(command.argument, 'argument'))} ;;"


def _zsh_action(value: Value, name: str) -> str:
    actions = {"nothing": "", "word": f"({' '.join(value.words)})", "number": " ", "file": "_files"}
    return f":{name.replace(':', '')}:{actions[value.takes]}" if actions[value.takes] else ""


FISH = """\
# Completes wenet-uio in fish: a file of ~/.config/fish/completions, named wenet-uio.fish.

# The name of the command that is typed so far.
function __wenet_uio_command
    set -l typed (commandline -opc)
    set -e typed[1]
    switch "$typed[1]"
        case @FIRST_OF_TWO@
            string join ' ' -- $typed[1..2]
        case '*'
            string join ' ' -- $typed[1]
    end
end

function __wenet_uio_is
    set -l typed (__wenet_uio_command)
    test "$typed" = "$argv"
end

complete -c wenet-uio -f
@FIRST_WORDS@
@COMMANDS@
"""


def fish_script(commands: dict[str, Completed]) -> str:
    """Return the script of fish."""
    first_words = _first_words(commands)
    pairs = {first: below for first, (_, below) in first_words.items() if below}
    lines = [
        f"complete -c wenet-uio -n '__wenet_uio_is {prefix}' -a {word} -d {_fish_quoted(purpose)}"
        for prefix, below in [
            ('""', {first: purpose for first, (purpose, _) in first_words.items()}),
            *pairs.items(),
        ]
        for word, purpose in below.items()
    ]
    general = ("-l help -d 'list the commands'", "-l version -d 'version of the package'")
    lines += [f"complete -c wenet-uio -n '__wenet_uio_is \"\"' {option}" for option in general]
    return _filled(
        FISH,
        FIRST_OF_TWO=" ".join(pairs),
        FIRST_WORDS=lines,
        COMMANDS=[
            f"complete -c wenet-uio -n '__wenet_uio_is {name}' {rest}"
            for name, command in commands.items()
            for rest in _fish_rest(command)
        ],
    )


def _fish_rest(command: Completed) -> Iterator[str]:
    """Yield what follows the condition in the lines of a command."""
    for option in command.options:
        names = " ".join(_fish_name(name) for name in option.names)
        yield f"{names} {_fish_value(option.value)}-d {_fish_quoted(option.meaning)}"

    if command.argument.takes == "file":
        yield "-F"
    elif command.argument.words:
        yield f"-a {_fish_quoted(' '.join(command.argument.words))}"


def _fish_name(name: str) -> str:
    if name.startswith("--"):
        return f"-l {name[2:]}"
    return f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}"


def _fish_value(value: Value) -> str:
    words = _fish_quoted(" ".join(value.words))
    return {"nothing": "", "word": f"-xa {words} ", "number": "-x ", "file": "-rF "}[value.takes]


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _filled(template: str, **parts: str | Sequence[str]) -> str:
    """Put texts and lines in the places @NAME@ of a template."""
    for name, part in parts.items():
        template = template.replace(f"@{name}@", part if isinstance(part, str) else "\n".join(part))
    return template


SCRIPTS: dict[str, Callable[[dict[str, Completed]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
