"""Names of the shards of a list: `shards_000000000.tar`, or CAT's `data-00000.tar`."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import NamedTuple

FORMAT = re.compile(r"(?P<stem>[^%/]*)%(?:0(?P<digits>[1-9]))?d\.tar")
"""`data-%05d.tar`: what stands before the number, and the digits of the number."""
PREFIX_DIGITS = 9
"""Digits of the number in `prefix_000000000.tar`."""


class ShardNaming(NamedTuple):
    """Shards are named `stem`, the number with at least `digits` digits, and `.tar`."""

    stem: str = "shards_"
    digits: int = PREFIX_DIGITS

    @classmethod
    def of_prefix(cls, prefix: str) -> ShardNaming:
        """Return `prefix_000000000.tar`, the names of WeNet."""
        return cls(f"{prefix}_")

    @classmethod
    def of_format(cls, text: str) -> ShardNaming:
        """Return the names of a format such as `data-%05d.tar`.

        Raises:
            ValueError: the text has another form.
        """
        match = FORMAT.fullmatch(text)
        if not match:
            raise ValueError(
                f"--fmt is a name with one number, such as data-%05d.tar, not {text!r}"
            )
        return cls(match["stem"], int(match["digits"] or 1))

    @property
    def note(self) -> str:
        """Name of the note that says which list the shards belong to."""
        if self.digits == PREFIX_DIGITS and self.stem.endswith("_"):
            return f"{self.stem[:-1]}.list"
        return f"{self.stem}%0{self.digits}d.list"

    @property
    def pattern(self) -> str:
        """A glob for the beginning of the names."""
        return glob.escape(self.stem) + "[0-9]" * self.digits

    def name_of(self, number: int) -> str:
        """Return the name of a shard without `.tar`."""
        return f"{self.stem}{number:0{self.digits}d}"

    def whole(self, name: str) -> str | None:
        """Return the shard or receipt that a file belongs to; None if the file is none of a shard."""
        # A longer number has no zero in front: shards_000000000.tar is none of shards_%05d.tar.
        number = rf"(?:\d{{{self.digits}}}|[1-9]\d{{{self.digits},}})"
        file = rf"{number}(?:_[1-9]\d*)?(?P<whole>\.tar|\.json)(?:\..*idx)?"
        match = re.compile(file).fullmatch(name, len(Path(self.stem).name))
        return match and name[: match.end("whole")]
