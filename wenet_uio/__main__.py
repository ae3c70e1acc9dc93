"""The command `wenet-uio`: all commands of the package under one name.

wenet-uio check data/train/data.list
wenet-uio transcribe --model exp/conformer talk.mp3
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module

from wenet_uio import __version__
from wenet_uio.base.cli import run
from wenet_uio.base.messages import nearest_name
from wenet_uio.commands import COMMANDS, FIRST_WORDS, GROUPS


def main() -> None:
    """Run the sub-command that the command line names."""
    arguments = sys.argv[1:]
    words_of_name = 2 if arguments and arguments[0] in FIRST_WORDS else 1
    name = " ".join(arguments[:words_of_name])

    if name in COMMANDS:
        _end_at_ctrl_c()
        sys.argv = [f"wenet-uio {name}", *arguments[words_of_name:]]
        command = COMMANDS[name]
        run(import_module(f"wenet_uio.{command.module}").main, prints_data=command.prints_data)

    if name == "--version":
        run(lambda: print(f"wenet_uio {__version__}", flush=True))

    is_help = arguments[words_of_name - 1 :] in ([], ["-h"], ["--help"])
    if is_help and (words_of_name == 2 or name in ("", "-h", "--help")):
        run(lambda: print(usage(), flush=True) or (0 if arguments else 2))

    run(lambda: refuse(name))


def _end_at_ctrl_c() -> None:
    """Let Ctrl-C end the process while the command imports its libraries, some of which go on after a
    KeyboardInterrupt; `run` undoes this.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def refuse(name: str) -> int:
    """Report an unknown sub-command; returns the exit status."""
    print(f"error: wenet-uio {name}: unknown command; {hint_for(name)}", file=sys.stderr)
    return 2


def hint_for(wrong: str) -> str:
    """Return the nearest sub-command; names of modules, such as make_shard_list, are names too."""
    modules = {command.module.rpartition(".")[2]: name for name, command in COMMANDS.items()}
    names = dict(zip(COMMANDS, COMMANDS, strict=True)) | modules
    nearest = nearest_name(wrong.removesuffix(".py"), names)
    return f"did you mean {names[nearest]}?" if nearest else "wenet-uio --help lists the commands"


def usage() -> str:
    """Return the list of all sub-commands."""
    lines = ["usage: wenet-uio COMMAND [OPTIONS]", ""]
    for title, commands in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:13} {each.purpose}" for name, each in commands.items())]
        lines.append("")

    return "\n".join([*lines, "wenet-uio COMMAND --help explains a command; --version"])


if __name__ == "__main__":
    main()
