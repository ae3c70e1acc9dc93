"""Data lists: raw lists of JSON lines, and shard lists of one path a line, with the path of a manifest where one is."""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wenet_uio.dataset.storage import objects

DataType = Literal["raw", "shard"]

# NeMo's names beside ours: what is read, in the order of preference.
KEY, AUDIO, TEXT = ("key",), ("wav", "audio_filepath"), ("txt", "text")
SKIP = "_skipme"
"""NeMo's mark of a line to leave out: true, or the reason."""
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
        if self.end is not None or self.start or not self.extra.keys().isdisjoint(("start", "end", "offset")):
            values |= {"start": self.start, "end": self.end}
        rest = {name: value for name, value in self.extra.items() if name not in values}
        return json.dumps(values | rest, ensure_ascii=False)


class ShardFiles(NamedTuple):
    """One shard of a list: a tar, and what else it takes to read it."""

    tar: str
    manifest: str | None = None
    """NeMo's manifest or Lhotse's cuts; None where the tar has the texts."""
    shard_id: int | None = None
    """Entries of the manifest that are of this tar; None where all are."""

    def __str__(self) -> str:
        return "\t".join(str(part) for part in self if part is not None)

    @classmethod
    def parse(cls, text: str) -> ShardFiles:
        tar, *rest = text.split("\t")
        return cls(tar, *rest[:1], *map(int, rest[1:]))


def parse_raw_line(line: bytes | str, text_field: str | None = None) -> RawLine:
    """Read one JSON line, with our names or NeMo's (`audio_filepath`, `text`, `offset`, `duration`).

    Args:
        text_field: another name of the text.

    Raises:
        ListError: not JSON, or without audio or text; the caller adds list and line number.
    """
    try:
        values = json.loads(line)
    except ValueError as error:
        raise ListError(f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ListError(f"expected an object with key, wav and txt, found {type(values).__name__}")
    text_names = (text_field,) if text_field else TEXT
    wav, text = (_take(values, names) for names in (AUDIO, text_names))
    if not isinstance(wav, str) or not isinstance(text, str):
        needed = ((AUDIO, wav), (text_names, text))
        missing = " and ".join(names[0] for names, value in needed if not isinstance(value, str))
        raise ListError(f"needs strings wav and {text_names[0]}, lacks {missing}")
    key = _take(values, KEY)
    try:
        start, end = _segment(values)
    except (TypeError, ValueError) as error:
        raise ListError(f"start, end, offset and duration are seconds ({error})") from None
    return RawLine(str(key) if key is not None else key_of_audio(wav, start), wav, text, start, end, values)


def _segment(values: dict[str, Any]) -> tuple[float, float | None]:
    """Start and end in seconds; a duration ends what has a start or an offset, be it 0."""
    first, end, duration = _take(values, ("start", "offset")), values.pop("end", None), values.get("duration")
    duration = None if duration is None else float(duration)
    start = float(first or 0.0)
    if end is None and first is not None and duration is not None:
        end = start + duration
    return start, None if end is None else float(end)


def reason_to_skip(line: RawLine) -> str | None:
    """Why a line that is sound is to be left out, where it says so (`_skipme`)."""
    mark = line.extra.get(SKIP)
    return mark if isinstance(mark, str) else f"left out: {SKIP} is set" if mark else None


def read_shard_list(path: str | Path) -> list[str]:
    """Shards of a list, each as `str(ShardFiles)`, of paths or URIs.

    Numeric ranges `{000..511}` (also `_OP_0..511_CL_`) and globs expand. After a tab a line may name the manifest that
    describes its audio: as many as there are tars, or one for all, of which each tar has the entries with its number
    (`audio_7.tar`) as `shard_id`, or the number after another tab.

    Raises:
        ListError: a pattern that matches nothing, or manifests that do not fit their tars, naming the line.
    """
    shards: list[str] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                tars, *manifests = line.strip().split("\t")
                shards.extend(map(str, _shards_of_line(tars, *manifests)))
            except ListError as error:
                raise ListError(f"{path}:{number}: {error}") from None
    return shards


def expand(pattern: str) -> list[str]:
    """Paths or URIs that a pattern with numeric ranges and globs stands for.

    Raises:
        ListError: a glob that matches nothing.
    """
    paths: list[str] = []
    for name in _expand_ranges(pattern):
        remote = objects.is_remote(name)
        if not any(mark in name for mark in ("*" if remote else "*?[")):  # URIs have ? and [ of their own
            paths.append(name)
            continue
        matches = objects.matches(name) if remote else sorted(glob.glob(objects.without_scheme(name)))
        if not matches:
            raise ListError(f"{name} matches no file")
        paths.extend(matches)
    return paths


def _shards_of_line(tars: str, manifests: str | None = None, shard_id: str | None = None) -> list[ShardFiles]:
    if manifests is None:
        return [ShardFiles(tar) for tar in expand(tars)]
    if shard_id is None:
        return pair_manifests(expand(tars), expand(manifests))
    return [ShardFiles(tars, manifests, int(shard_id))]


def pair_manifests(tars: Sequence[str], manifests: Sequence[str]) -> list[ShardFiles]:
    """Tars with the manifests that describe them: as many of one as of the other, or one manifest for all.

    Raises:
        ListError: their numbers do not fit.
    """
    if len(manifests) == 1 and len(tars) > 1:
        return [ShardFiles(tar, manifests[0], _number_of(tar)) for tar in tars]
    if len(tars) != len(manifests):
        raise ListError(f"{len(tars)} tars and {len(manifests)} manifests: give one manifest a tar, or one for all")
    return [ShardFiles(tar, manifest) for tar, manifest in zip(tars, manifests, strict=True)]


def _number_of(tar: str) -> int:
    number = re.search(r"(\d+)[^/\d]*$", tar)
    if number is None:
        raise ListError(f"{tar} has no number that says which shard_id of the manifest it holds")
    return int(number[1])


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


def key_of_audio(wav: str, start: float = 0.0) -> str:
    """The key of a line without one: the file name without suffix and, except at 0, the start in seconds."""
    return Path(wav).stem + (f"_{start:g}" if start else "")


def locate(wav: str, data_list: str | Path) -> str:
    """Path or remote URI of the audio of a raw line: as it stands, or else relative to the list (NeMo's way)."""
    if objects.is_remote(wav):
        return wav
    wav = objects.without_scheme(wav)
    if os.path.isabs(wav) or os.path.exists(wav):
        return wav
    beside = os.path.join(os.path.dirname(data_list), wav)
    return beside if os.path.exists(beside) else wav


def lines_of(path: str) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line of a file."""
    offset = 0
    with open(path, "rb") as file:
        for line in file:
            yield offset, line
            offset += len(line)
