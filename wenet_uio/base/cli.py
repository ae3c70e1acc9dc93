"""Run a command: the form of its help, one-line errors, exit statuses, and Ctrl-C without a stack
trace.

Commands alone import this module. It changes what an interrupt prints from then on, so that Ctrl-C
is quiet while a command still imports its libraries.
"""

from __future__ import annotations

import argparse
import errno
import inspect
import json
import logging
import os
import re
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast

from wenet_uio import __version__
from wenet_uio.base.crashes import AGAIN, StartAgainError
from wenet_uio.base.imports import WITHOUT_IT, lacks_add_on
from wenet_uio.base.memory import NO_SHARED_MEMORY, is_shared_memory_full
from wenet_uio.base.messages import PACKAGE, PrintableStream
from wenet_uio.base.options import SuggestingParser, positive_int
from wenet_uio.base.uris import ShownStream

FORMAT_OF_DEBUG = "%(asctime)s %(levelname)s %(name)s: %(message)s"
COLUMNS = 80
"""Width of every help."""
log = logging.getLogger(__name__)
REMEDIES = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "let this machine open more files",
    errno.ENOMEM: "free memory",
    errno.EIO: "mend the disk or its mount",
    errno.ESTALE: "mount the folder again",
    errno.EACCES: "permit it to this user",
}
"""{error of the system that does not come from the files: how to mend it}."""
UNITS = ("seconds", "bytes", "frames")
"""The value of an option whose name ends so is shown in this unit."""


def _show_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show the stack trace of an error, and nothing for Ctrl-C."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _show_failure


def run(main: Callable[[], int | None], *, prints_data: bool = False) -> None:
    """Call `main` and exit with its status (None is 0).

    Everything that the process prints from now on is shown without passwords and signatures, and
    without commands for terminals, stack traces too. A ValueError or OSError, and an add-on
    that was taken away, is printed as one `error:` line; the exit status is 1, or AGAIN after a
    StartAgainError.

    Args:
        prints_data: standard output has texts of utterances, which are printed unchanged, unless
            a terminal would obey characters of them.
    """
    _open_closed_streams()
    sys.stderr = cast(TextIO, ShownStream(sys.stderr))
    if not prints_data:
        sys.stdout = cast(TextIO, ShownStream(sys.stdout))
    elif sys.stdout.isatty():
        sys.stdout = cast(TextIO, PrintableStream(sys.stdout))

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        status = main()
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except ModuleNotFoundError as error:
        if not lacks_add_on(error):
            raise
        print(f"error: {error.name}: {WITHOUT_IT}", file=sys.stderr)
        status = 1
    except (ValueError, OSError) as error:
        print(f"error: {_error_message(error)}", file=sys.stderr)
        log.debug("where the error comes from", exc_info=error)
        status = AGAIN if isinstance(error, StartAgainError) else 1
    except KeyboardInterrupt:
        status = 130

    sys.exit(status or 0)


def _open_closed_streams() -> None:
    """Give a stream that the caller has closed, as `>&-` does, a place where nothing is kept."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # as Python sets a closed stream
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the end


def _error_message(error: Exception) -> str:
    """Return the message of an error; an error of the system begins with the name of the file."""
    if not isinstance(error, OSError) or not error.strerror or error.filename2 is not None:
        return str(error)

    if error.errno in REMEDIES:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full and error.filename is None and is_shared_memory_full():
            return NO_SHARED_MEMORY
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}; {REMEDIES[error.errno]}, then run the same command again"

    return str(error) if error.filename is None else f"{error.filename}: {error.strerror}"


class HelpStyle(argparse.HelpFormatter):
    """The one form of `--help`: 80 columns, paragraphs filled, examples as they are written.

    Every option that takes a value says its default; a number is N or X where it has no unit.
    """

    def __init__(self, prog: str, **_: Any) -> None:
        super().__init__(prog, max_help_position=26, width=COLUMNS)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs: list[str] = []
        for paragraph in inspect.cleandoc(text).split("\n\n"):
            is_example = re.search(r"(?m)^ ", paragraph) is not None
            paragraphs.append(paragraph if is_example else textwrap.fill(paragraph, width))
        return "\n\n".join(paragraphs)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if action.metavar is None and has_many_choices(action):
            text = f"{', '.join(map(str, action.choices or ()))}: {text}"
        return text + _default_note(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, value_name(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _metavar_formatter(
        self, action: argparse.Action, default_metavar: str
    ) -> Callable[[int], tuple[str, ...]]:
        if action.metavar is None and has_many_choices(action):
            return lambda number: (value_name(action),) * number
        return super()._metavar_formatter(action, default_metavar)

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return value_name(action)


def _default_note(action: argparse.Action) -> str:
    """Return the default of an option as the end of its help, unless the help states it."""
    has_no_default = not action.option_strings or action.nargs == 0 or action.required
    if has_no_default or action.default == argparse.SUPPRESS or "(default:" in (action.help or ""):
        return ""
    if isinstance(action.default, (list, tuple)):
        return f" (default: {' '.join(map(str, action.default)) or 'none'})"
    return " (default: none)" if action.default in (None, "") else " (default: %(default)s)"


def has_many_choices(action: argparse.Action) -> bool:
    """Whether the choices would fill a line, so that the help lists them with the meaning."""
    return action.choices is not None and sum(len(str(each)) for each in action.choices) > 30


def value_name(action: argparse.Action) -> str:
    """Return what the help calls the value of an option without a name for it."""
    if action.type not in (int, float, positive_int):
        return action.dest.upper()

    last_word = action.dest.rpartition("_")[2]
    if last_word in UNITS:
        return last_word.upper()
    return "X" if action.type is float else "N"


def command_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command, with the form of help that all commands have.

    Args:
        description: docstring of the command; `%(prog)s` in its examples is the command.
    """
    parser = SuggestingParser(
        prog=_command_name(), description=description, formatter_class=HelpStyle
    )
    add_loudness(parser)
    return parser


class _SetLogLevel(argparse.Action):
    """Sets the level of the package's log when the option is read."""

    def __call__(self, *_: object) -> None:
        PACKAGE.setLevel(self.const)
        if self.const == logging.DEBUG:
            logging.basicConfig(format=FORMAT_OF_DEBUG)
            log.debug("wenet_uio %s: %s", __version__, shlex.join(sys.argv))


def add_loudness(parser: argparse.ArgumentParser) -> None:
    """Add --quiet and --verbose, which every command has."""
    group = parser.add_argument_group("messages").add_mutually_exclusive_group()
    for name, level, meaning in (
        ("--quiet", logging.WARNING, "only results, warnings and errors; no progress bar"),
        ("--verbose", logging.DEBUG, "debug lines with their times, and where an error comes from"),
    ):
        group.add_argument(
            name, action=_SetLogLevel, nargs=0, const=level, default=argparse.SUPPRESS, help=meaning
        )


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --json, after which standard output has JSON alone.

    Args:
        what: what is printed, such as `the report as one JSON object`.
    """
    parser.add_argument(
        "--json", action="store_true", help=f"print {what}; all else goes to standard error"
    )


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False), flush=True)


def _command_name() -> str:
    """Return how the command was started, as its examples show it."""
    script = Path(sys.argv[0])
    folder = script.resolve().parent
    # A clone may be called wenet_uio, and its scripts of tools/ are no modules.
    if folder.parent == Path(__file__).resolve().parents[1]:
        return f"python -m wenet_uio.{folder.name}.{script.stem}"
    return script.name
