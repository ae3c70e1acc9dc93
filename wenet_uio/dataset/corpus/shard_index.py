"""The index of one local shard: found by scanning the tar, kept beside the tar as `x.tar.idx`.

If the folder of the tar cannot be written, the index is in `data.list.idx.d/` beside the list, or in the cache.

A shard is a tar in which consecutive members with one key are a sample; see `formats/`. An index is made again if the
size or some pages of the tar differ, if the tar is more than a minute newer than the index, or if the manifest has
changed. Planning compares no pages, so that it opens no tar.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from wenet_uio.audio.read import AudioError, AudioInfo, audio_info
from wenet_uio.dataset.corpus.index import (
    COLUMNS,
    Entry,
    Indexed,
    Problem,
    Rows,
    StoredIndex,
    find_index,
    rows_of,
    write_index,
)
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.formats.lhotse_cuts import find_cuts, folder_beside_shar, is_cuts
from wenet_uio.dataset.formats.nemo_tarred import find_entries
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, FoundSample, Layout, find_samples
from wenet_uio.dataset.formats.tar_members import Member, read_members
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import places_of

COPY_SECONDS = 60.0
"""Seconds by which a tar may be newer than its index: copying both files gives them new times. The size of a tar alone
is not enough to tell two tars apart, because tars are padded to multiples of 10 KB."""


PAGE, PAGES = 4096, 4
"""Bytes and number of the pages of a tar that are compared with its index."""
LOST = "was in the tar when it was indexed before"
"""Reason of a sample that an earlier index has and a damaged tar does not."""
STALE = "its index had other samples than the tar, and was made again"
"""Reason that names a tar whose index counted as up to date."""

Comparison = Literal["size", "pages", "all"]
"""What must be as it was indexed: size and time of a tar; some of its pages too; everything (the tar is scanned)."""


def shard_index(shard: str, folder: Path, layout: Layout = DEFAULT_LAYOUT, compare: Comparison = "pages") -> Indexed:
    """Index of a local shard (`str(ShardFiles)`); made and kept if it is missing or out of date.

    Args:
        folder: the folder `data.list.idx.d` of the list, used if the folder of the shard cannot be written.

    Returns:
        the rows, and (key, reason) of each sample that cannot be used.
    """
    files = ShardFiles.parse(shard)
    tar, manifest = objects.without_scheme(files.tar), files.manifest and objects.without_scheme(files.manifest)
    files = files._replace(tar=tar, manifest=manifest)
    state = _state_of(files)
    before: StoredIndex | None = None
    was_current = False
    for place in _places(files, folder, layout):
        found = find_index(place, one_of_many=True)
        if found is None:
            continue
        is_current = (
            (compare == "size" or _is_sound(found.rows))
            and _mtime(tar) <= _mtime(place) + COPY_SECONDS
            and all(found.meta.get(name) == value for name, value in state.items())
        )
        if is_current and _has_pages(found.rows, tar, compare):
            return found.rows, found.bad
        if before is None or (is_current and not was_current):
            before, was_current = found, is_current
    rows, bad = scan_shard(files, layout, tar)
    bad += lost_since(before, rows, bad, files.tar)
    if before is None or not was_current or before.bad != bad or not same_rows(before.rows, rows):
        write_index(_places(files, folder, layout), rows, bad, state)
    return rows, bad + (stale(before, rows, files.tar) if was_current and compare == "all" else [])


def stale(before: StoredIndex | None, rows: Rows, tar: str) -> list[Problem]:
    """The problem of a tar that has other samples than its index."""
    if before is None or same_rows(before.rows, replace(rows, tar_pages=before.rows.tar_pages)):
        return []
    return [(tar, STALE)]


def lost_since(before: StoredIndex | None, rows: Rows, bad: Sequence[Problem], tar: str) -> list[Problem]:
    """Samples of an earlier index that are not in a damaged tar; none if the tar is not damaged.

    Args:
        rows: the samples that were found.
        bad: the problems that were found; those with the name of the tar are damage.
    """
    if before is None or all(key != tar for key, _ in bad):
        return []
    known = {*_keys(rows), *(key for key, _ in bad)}
    lost = (*_keys(before.rows), *(key for key, reason in before.bad if reason.startswith(LOST)))
    return _in_tar([(key, LOST) for key in dict.fromkeys(lost) if key not in known], tar)


def same_rows(first: Rows, second: Rows) -> bool:
    """Whether two indexes have the same samples at the same places, and are of the same tar."""
    one, other = first.columns(), second.columns()
    is_same = one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    return is_same and first.tar_pages == second.tar_pages


def digest_of_pages(file: BinaryIO) -> str:
    """Digest of pages at the start and at each quarter of a tar: a tar with other data differs in almost any page."""
    size = os.fstat(file.fileno()).st_size
    digest = hashlib.blake2b(digest_size=8)
    for number in range(PAGES):
        digest.update(os.pread(file.fileno(), PAGE, size * number // PAGES))
    return digest.hexdigest()


def pages_of(tar: str | Path) -> str:
    """`digest_of_pages` of a file."""
    with open(tar, "rb") as file:
        return digest_of_pages(file)


def _has_pages(rows: Rows, tar: str, compare: Comparison) -> bool:
    """Whether a tar has the pages that were indexed, as far as they are to be compared."""
    return compare == "size" or (compare == "pages" and rows.tar_pages in ("", pages_of(tar)))


def _is_sound(rows: Rows) -> bool:
    """Whether the columns of an index, which anybody may have written, fit each other."""
    columns = [(getattr(rows, name), dtype) for name, dtype in COLUMNS.items()]
    ends = rows.key_end
    return (
        all(len(column) == len(rows) and column.dtype == dtype for column, dtype in columns)
        and bool(np.all(ends[1:] >= ends[:-1]))
        and (not len(rows) or int(ends[-1]) <= len(rows.keys))
    )


def _keys(rows: Rows) -> list[str]:
    if not _is_sound(rows):
        return []
    starts = [0, *rows.key_end.tolist()]
    keys = rows.keys.tobytes()
    return [as_word(keys[start:end].decode(errors="backslashreplace")) for start, end in pairwise(starts)]


def kept_path(files: ShardFiles, folder: Path, layout: Layout) -> Path:
    """Path of the index of a shard in the folder `data.list.idx.d` of its list."""
    name = hashlib.blake2b(f"{files}{layout.suffix}".encode(), digest_size=16).hexdigest()
    return folder / name[:2] / f"{name}.idx"


def _places(files: ShardFiles, folder: Path, layout: Layout) -> Iterator[Path]:
    """Where the index of a local shard may be: beside the shard, in the folder of the list, in the cache."""
    yield sidecar_of(files.tar, files.manifest, layout)
    tar, manifest = (path and os.path.abspath(path) for path in files[:2])  # noqa: PTH100 - resolve() follows links
    yield from places_of(kept_path(files._replace(tar=tar, manifest=manifest), folder, layout))


def scan_shard(files: ShardFiles, layout: Layout, tar: str) -> Indexed:
    """Find the samples of a shard, and read the headers of their audio.

    Args:
        files: tar and manifest as the list names them.
        tar: the tar itself, or a local copy of a remote tar.

    Returns:
        the rows, and (key, reason) of each sample without audio, without text, or with audio that cannot be read, and
        of each damaged place of the tar.
    """
    members, found = read_members(tar, files.tar)
    if files.manifest:
        names = Counter(member.name for member in members)
        found += [
            (name, f"{count} members have this name, and only the last is used")
            for name, count in names.items()
            if count > 1
        ]
    bad = _in_tar(found, files.tar)
    if not members and not files.manifest:
        return replace(rows_of([]), tar_pages=pages_of(tar)), bad
    with _mapped(tar) as data:

        def read(member: Member) -> bytes:
            return data[member.offset : member.offset + member.size]

        @cache  # several segments may be in one member
        def info_of(member: Member) -> AudioInfo:
            return audio_info(read(member))

        if files.manifest is None:
            samples, problems = find_samples(members, layout, read)
        elif is_cuts(files.manifest):
            samples, problems = find_cuts(members, files.manifest, info_of)
        else:
            samples, problems = find_entries(members, files.manifest, files.shard_id, layout, info_of)
        rows = _rows_of_samples(samples, info_of, problems)
        bad += problems if files.manifest else _in_tar(problems, files.tar)
        return replace(rows, tar_pages=pages_of(tar)), bad


def _in_tar(bad: Sequence[Problem], tar: str) -> list[Problem]:
    """The problems, each with the name of the tar."""
    name = tar.partition("?")[0].rpartition("/")[2]
    return [(key, reason if key == tar else f"{reason} (in {name})") for key, reason in bad]


@contextmanager
def _mapped(path: str) -> Iterator[mmap.mmap | bytes]:
    """Map a file; an empty file cannot be mapped, and is no bytes."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def sidecar_of(tar: str | Path, manifest: str | None = None, layout: Layout = DEFAULT_LAYOUT) -> Path:
    """Path of the index of a shard: beside the tar, or beside the manifest if there is one.

    Lhotse reads every file in the folder of a Shar as a part of the Shar. The indexes of a Shar `x` are therefore in a
    folder `x.uio`.
    """
    if manifest is None:
        return Path(f"{tar}{layout.suffix}.idx")
    folder = folder_beside_shar(manifest) if is_cuts(manifest) else Path(manifest).parent
    return folder / f"{Path(manifest).name}.{Path(tar).name}{layout.suffix}.idx"


def _rows_of_samples(
    samples: Sequence[FoundSample], info_of: Callable[[Member], AudioInfo], bad: list[Problem]
) -> Rows:
    """Rows of the samples with readable audio; the other samples are added to `bad`.

    If the tar does not hold all texts plainly, or a sample has a segment, a link or other fields, the rows carry
    records.
    """
    with_records = any(
        text is None or line.extra or line.start or line.end or audio.target or text.target
        for line, audio, text in samples
    )
    entries: list[Entry] = []
    records = bytearray()
    for line, audio, text in samples:
        try:
            count, rate = _length(info_of(audio), line.start, line.end)
        except AudioError as error:
            bad.append((line.key, str(error)))
            continue
        text_at = (text.offset, text.size) if text else (0, 0)
        if with_records:
            values = [line.text, line.start, line.end, line.extra, line.key, audio.target or audio.name]
            try:
                record = json.dumps(values, ensure_ascii=False).encode()
            except (UnicodeEncodeError, RecursionError) as error:
                bad.append((line.key, f"its text or other fields cannot be stored ({error})"))
                continue
            text_at = len(records), len(record)
            records += record
        entries.append(Entry(line.key, count, rate, len(line.text.strip()), audio.offset, audio.size, *text_at))
    rows = rows_of(entries)
    return replace(rows, records=np.frombuffer(bytes(records), np.uint8)) if with_records else rows


def _length(info: AudioInfo, start: float, end: float | None) -> tuple[int, int]:
    """Number of samples of a segment, and their rate in Hz."""
    count = info.samples_between(start, end)
    if not count:
        raise AudioError(f"no audio between {start} s and {end} s")
    return count, info.sample_rate


def _mtime(path: str | Path) -> float:
    return os.path.getmtime(path)  # noqa: PTH204 - runs for every shard that is read; pathlib is slower


def _state_of(files: ShardFiles) -> dict[str, Any]:
    """State of the files of a shard, to find out whether an index is out of date."""
    state: dict[str, Any] = {"tar_bytes": os.path.getsize(files.tar)}  # noqa: PTH202 - as in _mtime
    if files.manifest:
        status = Path(files.manifest).stat()
        state |= {"manifest": [status.st_size, status.st_mtime_ns], "shard_id": files.shard_id}
    return state
