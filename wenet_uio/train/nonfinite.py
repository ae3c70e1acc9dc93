"""The utterances of steps and of validations without finite numbers: in the log, and all in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from wenet_uio.base.files import append_line, read_lines, written_aside
from wenet_uio.base.messages import listed

NAMED = 3
"""Utterances that a message names."""


class NonfiniteFile:
    """A line of JSON for each event: `what` is not finite, `step`, and `utterances` of all ranks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, last_step: int) -> None:
        """Delete the lines of steps after the last one, which will come again or be others."""
        records = read_lines(self.path, ("step",))
        kept = [record for record in records if record["step"] <= last_step]
        if not kept:
            self.path.unlink(missing_ok=True)
        elif len(kept) < len(records):
            with written_aside(self.path, "w") as file:
                file.writelines(f"{json.dumps(record, ensure_ascii=False)}\n" for record in kept)

    def add(self, what: str, step: int, keys: Sequence[str]) -> None:
        """Add a line, unless it is there from an earlier start."""
        record = {"step": step, "what": what, "utterances": [*keys]}
        if record not in read_lines(self.path):
            append_line(self.path, record)

    def named(self, keys: Sequence[str]) -> str:
        """Name some utterances, and the file that has all of them."""
        return f"utterances: {listed(keys, NAMED, ' ')}; all in {self.path}"
