"""Data lists: raw lists of JSON lines, and shard lists of one path a line."""

from __future__ import annotations

import glob
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

DataType = Literal["raw", "shard"]

# NeMo's names beside ours: what is read, in the order of preference.
KEY, AUDIO, TEXT = ("key",), ("wav", "audio_filepath"), ("txt", "text")
RANGE = re.compile(r"(?:\{|\(|\[|<|_OP_)(\d+)\.\.(\d+)(?:\}|\)|\]|>|_CL_)")


class ListError(ValueError):
    """A data list, or a line of one, that cannot be used."""


@dataclass(frozen=True)
class RawLine:
    """One line of a raw list."""

    key: str
    wav: str
    text: str
    start: float = 0.0
    """Seconds."""
    end: float | None = None
    """Seconds; None is the end of the audio."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Every other field."""

    def to_json(self) -> str:
        values: dict[str, Any] = {"key": self.key, "wav": self.wav, "txt": self.text}
        if self.end is not None or self.start:
            values |= {"start": self.start, "end": self.end}
        return json.dumps(values | self.extra, ensure_ascii=False)


def parse_raw_line(line: bytes | str) -> RawLine:
    """Read one JSON line, with our names or NeMo's (`audio_filepath`, `text`, `offset`, `duration`).

    Raises:
        ListError: not JSON, or without audio or text; the caller adds list and line number.
    """
    try:
        values = json.loads(line)
    except ValueError as error:
        raise ListError(f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ListError(f"expected an object with key, wav and txt, found {type(values).__name__}")
    wav, text = (_take(values, names) for names in (AUDIO, TEXT))
    if not isinstance(wav, str) or not isinstance(text, str):
        missing = " and ".join(names[0] for names, value in ((AUDIO, wav), (TEXT, text)) if not isinstance(value, str))
        raise ListError(f"needs strings wav and txt, lacks {missing}")
    key = _take(values, KEY)
    first, end, duration = _take(values, ("start", "offset")), values.pop("end", None), values.get("duration")
    start = float(first or 0.0)
    if end is None and first is not None and duration is not None:
        end = start + duration
    return RawLine(str(key) if key is not None else _key_from(wav, start), wav, text, start, end, values)


def read_shard_list(path: str | Path) -> list[str]:
    """Paths of the shards of a list; numeric ranges `{000..511}` (also `_OP_0..511_CL_`) and globs expand.

    Raises:
        ListError: a pattern that matches nothing, naming its line.
    """
    shards: list[str] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                shards.extend(expand(line.strip()))
            except ListError as error:
                raise ListError(f"{path}:{number}: {error}") from None
    return shards


def expand(pattern: str) -> list[str]:
    """Paths that a pattern with numeric ranges and globs stands for.

    Raises:
        ListError: a glob that matches nothing.
    """
    paths: list[str] = []
    for name in _expand_ranges(pattern):
        if not any(mark in name for mark in "*?["):
            paths.append(name)
            continue
        matches = sorted(glob.glob(name))
        if not matches:
            raise ListError(f"{name} matches no file")
        paths.extend(matches)
    return paths


def _expand_ranges(pattern: str) -> Iterator[str]:
    pieces = RANGE.split(pattern)
    literals, firsts, lasts = pieces[::3], pieces[1::3], pieces[2::3]
    ranges = [
        [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        for first, last in zip(firsts, lasts, strict=True)
    ]
    for numbers in itertools.product(*ranges):
        yield literals[0] + "".join(number + literal for number, literal in zip(numbers, literals[1:], strict=True))


def _take(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in values:
            return values.pop(name)
    return None


def _key_from(wav: str, start: float) -> str:
    return Path(wav).stem + (f"_{start:g}" if start else "")
