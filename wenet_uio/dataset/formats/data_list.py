"""Data lists: raw lists of JSON lines, and shard lists with one tar per line.

Raw list: JSON lines `{"key", "wav", "txt"}` with optional `start`, `end` and `duration` (seconds),
`sampling_rate` and `channel`. Other fields are kept with the sample. NeMo's names `audio_filepath`,
`text`, `offset` and `duration` are read too, with paths relative to the list. A line with `_skipme`
is left out and reported.

Shard list: one path or URI of a tar per line, where ranges and globs expand, optionally followed by
a tab and the manifest that describes the audio of the tars (NeMo's, or Lhotse's `cuts.*`). A
parquet file stands for its row groups.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wenet_uio.audio.features import place_of
from wenet_uio.base.files import naming
from wenet_uio.base.uris import shown
from wenet_uio.dataset.formats.errors import ListError, MissingFileError
from wenet_uio.dataset.formats.keys import (
    Audio,
    distinct_keys,
    key_of_audio,
    one_word,
    without_query,
)
from wenet_uio.dataset.formats.patterns import MOST_DIGITS, expand
from wenet_uio.dataset.storage import objects
from wenet_uio.text.characters import BYTE_ORDER_MARK, without_mark

DataType = Literal["raw", "shard"]

# Names of each field, in the order of preference: ours, then NeMo's; `feats` is the name of stored
# features.
KEY, AUDIO, TEXT = ("key",), ("wav", "audio_filepath", "feats"), ("txt", "text")
SKIP = "_skipme"
"""NeMo's mark of a line that is to be left out: true, or the reason as a string."""
UNUSABLE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""Escapes in JSON of NUL and of halves of surrogate pairs; two halves together are a character."""


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line of a raw list."""

    key: str
    wav: str
    text: str
    """Without a byte order mark at its start, wherever the text comes from."""
    start: float = 0.0
    """Seconds."""
    end: float | None = None
    """Seconds; None is the end of the audio."""
    extra: dict[str, Any] = field(default_factory=dict)
    """All other fields, as they are in the list."""
    is_named_by_audio: bool = field(default=False, compare=False)
    """The line states no key; the key is the name of the audio."""

    def __post_init__(self) -> None:
        if self.text.startswith(BYTE_ORDER_MARK):
            object.__setattr__(self, "text", without_mark(self.text))

    @property
    def audio_of_key(self) -> Audio | None:
        """The segment that the key is made of; None if the line states its key."""
        return (self.wav, self.start, self.end) if self.is_named_by_audio else None

    def to_json(self) -> str:
        """Return the line as JSON, with our names; `start` and `end` only where the line is a
        segment.
        """
        values: dict[str, Any] = {"key": self.key, "wav": self.wav, "txt": self.text}
        if (
            self.end is not None
            or self.start
            or not self.extra.keys().isdisjoint(("start", "end", "offset"))
        ):
            values |= {"start": self.start, "end": self.end}

        extra = {name: value for name, value in self.extra.items() if name not in values}
        return json.dumps(values | extra, ensure_ascii=False)


class ShardFiles(NamedTuple):
    """One shard of a list: a tar, and the manifest that describes it if there is one."""

    tar: str
    manifest: str | None = None
    """NeMo's manifest or Lhotse's cuts; None if the tar contains the texts."""
    shard_id: int | None = None
    """The entries of the manifest with this `shard_id` describe the tar; None: all entries do."""

    def __str__(self) -> str:
        return "\t".join(str(part) for part in self if part is not None)

    @classmethod
    def parse(cls, text: str) -> ShardFiles:
        """Return the shard that `str` wrote: tar, manifest and shard_id, separated by tabs."""
        tar, *rest = text.split("\t")
        manifest = rest[0] if rest else None
        shard_id = int(rest[1]) if len(rest) > 1 else None
        return cls(tar, manifest, shard_id)

    @property
    def is_plain(self) -> bool:
        """Whether tar and manifest are local files that are read in place: neither remote nor
        packed.
        """
        return all(objects.is_plain(path) for path in (self.tar, self.manifest) if path)


def parse_raw_line(line: bytes | str, text_field: str | None = None) -> RawLine:
    """Parse one line of a raw list, with our names or NeMo's (`audio_filepath`, `text`, `offset`,
    `duration`).

    Args:
        text_field: name of the field with the text, instead of `txt` or `text`.

    Raises:
        ListError: not JSON, or audio or text is missing; callers add the list and the line number.
    """
    values = values_of(line)
    text_names = tuple(text_field.split(";")) if text_field else TEXT
    wav, text = (_pop_first(values, names) for names in (AUDIO, text_names))
    if not isinstance(wav, str) or not isinstance(text, str):
        needed = ((AUDIO, wav), (text_names, text))
        missing = " and ".join(names[0] for names, value in needed if not isinstance(value, str))
        raise ListError(f"needs strings wav and {text_names[0]}, lacks {missing}{_hint(values)}")

    key = _pop_first(values, KEY)
    try:
        start, end = _segment(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ListError(f"start, end, offset and duration must be seconds ({error})") from None

    if key is None:
        return RawLine(
            key_of_audio(wav, start), wav, text, start, end, values, is_named_by_audio=True
        )

    if not isinstance(key, (str, int, float)):
        raise ListError(f"key must be a string, found {type(key).__name__}")

    return RawLine(one_word(str(key)), wav, text, start, end, values)


def _hint(values: dict[str, Any]) -> str:
    """Return what to write instead of a line of NeMo that is no utterance."""
    if "conversations" in values:
        return "; conversations are a source of type multimodal_conversation"
    if "tts_text" in values:
        return "; text that is to be spoken is a source of type tts_text"
    return ""


def values_of(line: bytes | str) -> dict[str, Any]:
    """Return the fields of a line of JSON.

    Raises:
        ListError: the line is not a JSON object in UTF-8, or holds characters that no file can
            hold.
    """
    try:
        text = line if isinstance(line, str) else line.decode()
        values = json.loads(text)
    except UnicodeDecodeError as error:
        raise ListError(
            f"not UTF-8 ({error.reason} at byte {error.start}); convert the list with iconv"
        ) from None
    except ValueError as error:
        if text.startswith(BYTE_ORDER_MARK):  # before the first line of a file
            return values_of(text.removeprefix(BYTE_ORDER_MARK))
        raise ListError(f"not JSON ({error})") from None
    except RecursionError:
        raise ListError("not usable: its values are nested too deeply") from None

    if not isinstance(values, dict):
        raise ListError(f"expected an object of JSON, found {type(values).__name__}")
    # Searching strings first is faster: lists may have all characters beyond ASCII as escapes.
    if "\\u0000" in text or "\\ud" in text or "\\uD" in text:
        _check_characters(text, values)

    return values


def _check_characters(text: str, values: dict[str, Any]) -> None:
    """Raise ListError if a value has a character that no file can hold."""
    if not UNUSABLE.search(text):
        return

    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ListError(
            "holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"
        ) from None

    for name, value in values.items():
        if isinstance(value, str) and "\0" in value:
            raise ListError(f"{name} holds a NUL character (\\u0000)")


def _segment(values: dict[str, Any]) -> tuple[float, float | None]:
    """Start and end in seconds. With a start or offset (0 too), the end is start plus duration if
    there is no `end`.
    """
    first = _pop_first(values, ("start", "offset"))
    end, duration = values.pop("end", None), values.get("duration")
    if first is None and end is None and duration is None:
        return 0.0, None

    duration = None if duration is None else float(duration)
    start = float(first or 0.0)
    if end is None and first is not None and duration is not None:
        end = start + duration

    end = None if end is None else float(end)
    are_finite = start + abs(end or 0.0) + abs(duration or 0.0) < math.inf
    if not start >= 0 or not are_finite:
        raise ValueError(f"found {start}, {end} and {duration}")
    return start, end


def reason_to_skip(fields: dict[str, Any]) -> str | None:
    """Return the reason why a valid line with these fields is to be left out (`_skipme`); None if
    the line is to be used.
    """
    mark = fields.get(SKIP)
    return mark if isinstance(mark, str) else f"left out: {SKIP} is set" if mark else None


def read_shard_list(path: str | Path) -> list[str]:
    """Return shards of a list, each as `str(ShardFiles)`; tars and manifests are paths or URIs.

    Numeric ranges `{000..511}` (also `_OP_0..511_CL_`) and globs expand. After a tab a line may
    name manifests: either one for each tar, or one for all tars. In a manifest for all tars,
    `audio_7.tar` has the entries with `shard_id` 7; a line with one tar may state another shard_id
    after a second tab.

    Raises:
        ListError: a line is bad; the message names the line.
    """
    shards, bad = split_shard_list(path)
    if bad:
        raise ListError(": ".join(bad[0]))
    return shards


def split_shard_list(path: str | Path) -> tuple[list[str], list[tuple[str, str]]]:
    """Return shards of a list as `read_shard_list` gives them, and (place, reason) of its bad
    lines.

    Raises:
        MissingFileError: a pattern matches no file; the message names the line.
    """
    with naming(path):
        content = Path(path).read_bytes()
    return shards_of(path, content.split(b"\n"))


def shards_of(path: str | Path, lines: Iterable[bytes]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return shards of the lines of a list, see `split_shard_list`.

    Args:
        path: the list, for messages.
        lines: all lines of the list, with or without line ends.
    """
    shards: list[str] = []
    bad: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        content = line.removesuffix(b"\n")
        if number == 1:
            content = content.removeprefix(BOM_UTF8)
        try:
            text = content.decode().strip()
            if text:
                shards.extend(map(str, _shards_of_line(text.split("\t"))))
        except UnicodeDecodeError as error:
            bad.append((f"{path}:{number}", f"not UTF-8 ({error.reason} at byte {error.start})"))
        except MissingFileError as error:
            raise MissingFileError(f"{path}:{number}: {error}") from None
        except ListError as error:
            bad.append((f"{path}:{number}", str(error)))

    return shards, bad


def _shards_of_line(fields: list[str]) -> list[ShardFiles]:
    """Return the shards of one line: tars; tars and manifests; or one tar, its manifest and its
    shard_id.
    """
    if len(fields) == 1:
        tars = (tar for path in expand(fields[0]) for tar in objects.parts_of(path))
        return [ShardFiles(tar) for tar in tars]
    if len(fields) == 2:
        return pair_manifests(expand(fields[0]), expand(fields[1]))

    if len(fields) > 3 or not fields[2].isdecimal():
        raise ListError(
            "expected a tar, a manifest and a shard_id (a number), separated by tabs, found "
            f"{fields}"
        )

    if len(fields[2]) > MOST_DIGITS:
        raise ListError(f"shard_id {fields[2][:MOST_DIGITS]}… has more than {MOST_DIGITS} digits")

    return [ShardFiles(fields[0], fields[1], int(fields[2]))]


def pair_manifests(tars: Sequence[str], manifests: Sequence[str]) -> list[ShardFiles]:
    """Pair tars with the manifests that describe them: one manifest for each tar, or one for all.

    Raises:
        ListError: the numbers of tars and manifests do not fit, or a tar has no number.
    """
    if len(manifests) == 1 and len(tars) > 1:
        return [ShardFiles(tar, manifests[0], _number_of(tar)) for tar in tars]

    if len(tars) != len(manifests):
        raise ListError(
            f"{len(tars)} tars and {len(manifests)} manifests: give one manifest for each tar, or "
            "one for all"
        )

    return [ShardFiles(tar, manifest) for tar, manifest in zip(tars, manifests, strict=True)]


def _number_of(tar: str) -> int:
    """Return the last number in the name of a tar, which is the `shard_id` of its entries."""
    number = re.search(r"(\d+)[^/\d]*$", without_query(tar))
    if number is None:
        raise ListError(
            f"{tar}: its name has no number, which is needed as the shard_id of its entries in the "
            "manifest"
        )
    if len(number[1]) > MOST_DIGITS:
        raise ListError(f"{tar[:80]}…: its number has more than {MOST_DIGITS} digits")

    return int(number[1])


def _pop_first(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in values:
            return values.pop(name)
    return None


def with_distinct_keys(lines: Sequence[RawLine]) -> list[RawLine]:
    """Return the lines of one list; lines that state no key get longer ones if these clash
    (`keys.py`).
    """
    keys = distinct_keys([line.key for line in lines], [line.audio_of_key for line in lines])
    return [
        line if line.key == key else replace(line, key=key)
        for line, key in zip(lines, keys, strict=True)
    ]


def locate(wav: str, data_list: str | Path) -> str:
    """Return the path or URI of the audio of a raw line: as in the list if that file exists, else
    relative to the list (NeMo).
    """
    # os.path, because this runs for every sample that is read
    if objects.is_remote(wav):
        return wav

    wav = objects.without_scheme(wav)
    if os.path.isabs(wav) or os.path.exists(place_of(wav).path):  # noqa: PTH110, PTH117
        return wav

    beside = os.path.join(os.path.dirname(data_list), wav)  # noqa: PTH118, PTH120
    return beside if os.path.exists(place_of(beside).path) else wav  # noqa: PTH110


PACKED_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)
"""Errors of a packed manifest that is cut short or damaged."""


@contextmanager
def opened_manifest(path: str) -> Iterator[Iterable[bytes]]:
    """Open the lines of a manifest, which may be in a store and packed (`.gz`); reading may raise one of
    PACKED_ERRORS.

    Raises:
        OSError: the manifest cannot be read.
    """
    is_packed = without_query(path).lower().endswith(".gz")
    with (
        objects.open_or_hold(path) as stored,
        gzip.open(stored) if is_packed else stored as file,
        naming(shown(path)),
    ):
        yield file


def lines_of(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each line of a file."""
    offset = 0
    with open(path, "rb") as file, naming(path):
        for line in file:
            yield offset, line
            offset += len(line)
