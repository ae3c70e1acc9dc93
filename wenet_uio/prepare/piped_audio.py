"""Run the commands that stand for audio in wav.scp of Kaldi and ESPnet, such as `sox a.sph -t wav - |`.

A command of a table can do anything, so it runs only if the user trusts the table
(`--trust_commands`). Its output is written to a file once, and training reads this file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha1
from os import cpu_count
from pathlib import Path

from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import listed
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.prepare.corpus_parts import tell_left_out

PIPE = "|"
NAMED = 3
"""An error names this many commands that fail; it gives the number of all."""
SHOWN = 200
"""Characters of what a command says that an error shows."""


def is_command(wav: str) -> bool:
    """Tell whether a command stands for audio."""
    return wav.rstrip().endswith(PIPE)


def run_commands(
    lines: Sequence[RawLine], path: Path, folder: Path | None, allow_bad: bool
) -> list[RawLine]:
    """Return the lines with files in place of commands, which are run several at a time.

    A file that an earlier run of the same command wrote is taken as it is.

    Args:
        path: the corpus, for messages.
        folder: where the outputs are written; None if commands are not trusted.

    Raises:
        ListError: commands are not trusted; or some fail, and `allow_bad` does not leave their
            lines out.
    """
    # Utterances of one recording have one command, which gets the key of the first of them.
    key_of_command = {line.wav: line.key for line in reversed(lines) if is_command(line.wav)}
    commands = list(key_of_command)
    if not commands:
        return list(lines)
    if folder is None:
        raise ListError(
            f"{path}: {len(commands)} of its recordings are commands, which are not run unless you "
            "trust them: --trust_commands runs each once and keeps its audio; one of them is "
            f"`{commands[-1]}`"
        )

    print(
        f"{path}: runs {len(commands)} commands for audio; their audio is in {folder}", flush=True
    )
    files = {
        command: _output_file(folder, key_of_command[command], command) for command in commands
    }
    with ThreadPoolExecutor(cpu_count()) as pool:
        results = pool.map(_run_command, commands, files.values())
        reasons = dict(zip(commands, results, strict=True))  # empty for a command that succeeds

    failures: list[str] = []
    for command, reason in reasons.items():
        if reason:
            failures.append(f"{key_of_command[command]}: `{command}` {reason}")

    if failures and not allow_bad:
        raise ListError(
            f"{path}: {len(failures)} of {len(commands)} commands fail; --allow_bad leaves them "
            f"out: {listed(failures, NAMED)}"
        )

    tell_left_out(f"{path}: commands that fail", failures)
    return [
        replace(line, wav=str(files.get(line.wav, line.wav)))
        for line in lines
        if not reasons.get(line.wav)
    ]


def _output_file(folder: Path, key: str, command: str) -> Path:
    """Return the file of the output of a command; another command has another file."""
    name = key.replace("/", "-")
    return folder.absolute() / f"{name}-{sha1(command.encode()).hexdigest()[:8]}.wav"


def _run_command(command: str, file: Path) -> str:
    """Write the output of a command to a file, unless it is there; return why it fails, or ''."""
    if file.exists():
        return ""

    completed = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command.rstrip().removesuffix(PIPE)}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    messages = completed.stderr.decode(errors="replace").strip()[-SHOWN:]
    if completed.returncode:
        return f"ends with status {completed.returncode}: {messages}"
    if not completed.stdout:
        return f"writes no audio: {messages}"

    with written_aside(str(file)) as opened:
        opened.write(completed.stdout)
    return ""
