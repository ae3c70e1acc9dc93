"""The index of one local shard: found by scanning the tar, kept beside the tar as `x.tar.idx`.

If the folder of the tar cannot be written, the index is in `data.list.idx.d/` beside the list, or
in the cache.

A shard is a tar in which consecutive members with one key are a sample; see `formats/`. An index is
made again if the size or some pages of the tar differ, if the tar is more than a minute newer than
the index, or if the manifest has changed. Planning compares no pages, so that it opens no tar.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.read import audio_info
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
from wenet_uio.dataset.formats.data_list import RawLine, ShardFiles
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.formats.lhotse_cuts import find_cuts, folder_beside_shar, is_cuts
from wenet_uio.dataset.formats.nemo_tarred import find_entries
from wenet_uio.dataset.formats.rows import find_rows
from wenet_uio.dataset.formats.sample_layout import (
    DEFAULT_LAYOUT,
    FoundSample,
    Layout,
    find_samples,
)
from wenet_uio.dataset.formats.tar_headers import TarBytes
from wenet_uio.dataset.formats.tar_members import Member, mapped, members_of
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import places_of

COPY_SECONDS = 60.0
"""Seconds by which a tar may be newer than its index: copying both files gives them new times. The
size of a tar alone is not enough to tell two tars apart, because tars are padded to multiples of 10
KB."""
LOST = "was in the tar when it was indexed before"
"""Reason of a sample that an earlier index has and a damaged tar does not."""
STALE = "its index had other samples than the tar, and was made again"
"""Reason that names a tar whose index counted as up to date."""

Comparison = Literal["size", "pages", "all"]
"""What must be as it was indexed: size and time of a tar; some of its pages too; everything (the
tar is scanned)."""


def shard_index(
    shard: str, folder: Path, layout: Layout = DEFAULT_LAYOUT, compare: Comparison = "pages"
) -> Indexed:
    """Return the index of a local shard (`str(ShardFiles)`); made and kept if it is missing or out
    of date.

    Args:
        folder: the folder `data.list.idx.d` of the list, used if the folder of the shard cannot be
            written.

    Returns:
        the rows, and (key, reason) of each sample that cannot be used.
    """
    files = ShardFiles.parse(shard)
    tar = objects.without_scheme(files.tar)
    manifest = files.manifest and objects.without_scheme(files.manifest)
    files = files._replace(tar=tar, manifest=manifest)

    stored: list[tuple[bool, StoredIndex | None]] = []
    for is_current, index in _stored_indexes(files, folder, layout):
        if is_current and _is_as_indexed(index.rows, tar, compare):
            return index.rows, index.bad
        stored.append((is_current, index))

    # No stored index can be used. The scan is compared with one that counted as current, or, if
    # there is none, with an older one.
    was_current, former = max(stored, key=itemgetter(0), default=(False, None))

    rows, bad = scan_shard(files, layout, tar)
    bad += lost_since(former, rows, bad, files.tar)

    is_stored = (
        former is not None and was_current and former.bad == bad and same_rows(former.rows, rows)
    )
    if not is_stored:
        write_index(_places(files, folder, layout), rows, bad, _state_of(files))

    compared = former if was_current else None
    return rows, bad + stale(compared, rows, files.tar, compare)


def _stored_indexes(
    files: ShardFiles, folder: Path, layout: Layout
) -> Iterator[tuple[bool, StoredIndex]]:
    """Tell whether an index is of files of this state and time, and the index, for each index that
    a shard has.
    """
    state = _state_of(files)
    for place in _places(files, folder, layout):
        index = find_index(place, one_of_many=True)
        if index is not None:
            is_new = _mtime(files.tar) <= _mtime(place) + COPY_SECONDS
            is_of_state = all(index.meta.get(name) == value for name, value in state.items())
            yield is_new and is_of_state, index


def stale(before: StoredIndex | None, rows: Rows, tar: str, compare: Comparison) -> list[Problem]:
    """Report a tar whose samples do not match its index, if everything was compared."""
    if (
        before is None
        or compare != "all"
        or same_rows(before.rows, replace(rows, tar_pages=before.rows.tar_pages))
    ):
        return []
    return [(tar, STALE)]


def lost_since(
    before: StoredIndex | None, rows: Rows, bad: Sequence[Problem], tar: str
) -> list[Problem]:
    """Return samples of an earlier index that are not in a damaged tar; none if the tar is not
    damaged.

    Args:
        rows: the samples that were found.
        bad: the problems that were found; those with the name of the tar are damage.
    """
    if before is None or all(key != tar for key, _ in bad):
        return []
    known = {*_keys(rows), *(key for key, _ in bad)}
    lost = (*_keys(before.rows), *(key for key, reason in before.bad if reason.startswith(LOST)))
    return in_tar([(key, LOST) for key in dict.fromkeys(lost) if key not in known], tar)


def same_rows(first: Rows, second: Rows) -> bool:
    """Tell whether two indexes have the same samples at the same places, and are of the same tar."""
    columns, other_columns = first.columns(), second.columns()
    are_equal = columns.keys() == other_columns.keys() and all(
        np.array_equal(columns[name], other_columns[name]) for name in columns
    )
    return are_equal and first.tar_pages == second.tar_pages


def _is_as_indexed(rows: Rows, tar: str, compare: Comparison) -> bool:
    """Tell whether a tar whose size and time are as indexed counts as the tar that was indexed."""
    if compare == "size":
        return True
    return compare == "pages" and _is_sound(rows) and rows.tar_pages == pages_of(tar)


def _is_sound(rows: Rows) -> bool:
    """Validate the columns of an untrusted index: True if they fit each other."""
    columns = [(getattr(rows, name), dtype) for name, dtype in COLUMNS.items()]
    ends = rows.key_end
    return (
        all(len(column) == len(rows) and column.dtype == dtype for column, dtype in columns)
        and bool(np.all(ends[1:] >= ends[:-1]))
        and (not len(rows) or int(ends[-1]) <= len(rows.keys))
    )


def _keys(rows: Rows) -> list[str]:
    """Return the keys of a stored index; none if it is damaged."""
    if not _is_sound(rows):
        return []

    starts = [0, *rows.key_end.tolist()]
    keys = rows.keys.tobytes()
    return [
        as_word(keys[start:end].decode(errors="backslashreplace"))
        for start, end in pairwise(starts)
    ]


def kept_folder(data_list: str | Path) -> Path:
    """Return the folder of the indexes of remote and compressed shards, and of local shards in
    folders that cannot be written.
    """
    return Path(f"{data_list}.idx.d")


def kept_path(files: ShardFiles, folder: Path, layout: Layout) -> Path:
    """Return the path of the index of a shard in the folder `data.list.idx.d` of its list."""
    name = hashlib.blake2b(f"{files}{layout.suffix}".encode(), digest_size=16).hexdigest()
    return folder / name[:2] / f"{name}.idx"


def _places(files: ShardFiles, folder: Path, layout: Layout) -> Iterator[Path]:
    """Yield where the index of a local shard may be: beside the shard, in the folder of the list,
    in the cache.
    """
    yield sidecar_of(files.tar, files.manifest, layout)
    tar, manifest = (path and os.path.abspath(path) for path in files[:2])  # noqa: PTH100 - resolve() follows links
    yield from places_of(kept_path(files._replace(tar=tar, manifest=manifest), folder, layout))


def sidecar_of(
    tar: str | Path, manifest: str | None = None, layout: Layout = DEFAULT_LAYOUT
) -> Path:
    """Return the path of the index of a shard: beside the tar, or beside the manifest if there is
    one.

    Lhotse reads every file in the folder of a Shar as a part of the Shar. The indexes of a Shar `x`
    are therefore in a folder `x.uio`.
    """
    if manifest is None:
        return Path(f"{tar}{layout.suffix}.idx")
    folder = folder_beside_shar(manifest) if is_cuts(manifest) else Path(manifest).parent
    return folder / f"{Path(manifest).name}.{Path(tar).name}{layout.suffix}.idx"


def _mtime(path: str | Path) -> float:
    return os.path.getmtime(path)  # noqa: PTH204 - runs for every shard that is read; pathlib is slower


def _state_of(files: ShardFiles) -> dict[str, Any]:
    """Return the state of the files of a shard, to find out whether an index is out of date."""
    state: dict[str, Any] = {"tar_bytes": os.path.getsize(files.tar)}  # noqa: PTH202 - as in _mtime
    if files.manifest:
        status = Path(files.manifest).stat()
        state |= {"manifest": [status.st_size, status.st_mtime_ns], "shard_id": files.shard_id}
    return state


PAGE, PAGES = 4096, 4
"""Bytes and number of the pages of a tar that are compared with its index."""


def scan_shard(files: ShardFiles, layout: Layout, tar: str) -> Indexed:
    """Find the samples of a shard, and read the headers of their audio.

    Args:
        files: tar and manifest as the list names them.
        tar: the tar itself, or a local copy of a remote tar.

    Returns:
        the rows, and (key, reason) of each sample without audio, without text, or with audio that
        cannot be read, and of each damaged place of the tar.
    """
    with mapped(tar) as data:
        return scan(
            files,
            layout,
            data,
            lambda member: audio_info(data[member.offset : member.offset + member.size]),
        )


def scan(
    files: ShardFiles, layout: Layout, data: TarBytes, info_of: Callable[[Member], AudioInfo]
) -> Indexed:
    """As `scan_shard`, of a tar that is open.

    Args:
        info_of: reads the headers of the audio in a member; raises an AudioError if it cannot.
    """
    # Before the scan, so that a change during the scan is noticed later.
    tar_pages = digest_of_pages(lambda start: data[start : start + PAGE], len(data))
    members, problems_in_tar = members_of(data, files.tar)
    if files.manifest:
        names = Counter(member.name for member in members)
        problems_in_tar += [
            (name, f"{count} members have this name, and only the last is used")
            for name, count in names.items()
            if count > 1
        ]

    bad = in_tar(problems_in_tar, files.tar)
    if not members and not files.manifest:
        return replace(rows_of([]), tar_pages=tar_pages), bad

    def read(member: Member) -> bytes:
        return data[member.offset : member.offset + member.size]

    info_of = cache(info_of)  # several segments may be in one member
    if files.manifest is None:
        is_tar = objects.file_of(files.tar) == files.tar
        finder: Callable = find_samples if is_tar else partial(find_rows, part=files.tar)
        samples, problems = finder(members, layout, read)
    elif is_cuts(files.manifest):
        samples, problems = find_cuts(members, files.manifest, info_of)
    else:
        samples, problems = find_entries(members, files.manifest, files.shard_id, layout, info_of)

    rows = _rows_of_samples(samples, info_of, problems)
    bad += problems if files.manifest else in_tar(problems, files.tar)
    return replace(rows, tar_pages=tar_pages), bad


def in_tar(bad: Sequence[Problem], tar: str) -> list[Problem]:
    """Return the problems, each with the name of the tar."""
    name = tar.partition("?")[0].rpartition("/")[2]
    return [(key, reason if key == tar else f"{reason} (in {name})") for key, reason in bad]


def digest_of_pages(read_page: Callable[[int], bytes], size: int) -> str:
    """Return the digest of pages at the start and at each quarter of a tar: a tar with other data
    differs in almost any page.

    Args:
        read_page: reads PAGE bytes, or up to the end of the tar, from a byte on.
        size: bytes of the tar.
    """
    digest = hashlib.blake2b(digest_size=8)
    for number in range(PAGES):
        digest.update(read_page(size * number // PAGES))
    return digest.hexdigest()


def pages_of(tar: str | Path | BinaryIO) -> str:
    """Return `digest_of_pages` of a file."""
    if isinstance(tar, (str, Path)):
        with open(tar, "rb") as file:
            return pages_of(file)

    number = tar.fileno()
    return digest_of_pages(lambda start: os.pread(number, PAGE, start), os.fstat(number).st_size)


def _rows_of_samples(
    samples: Sequence[FoundSample], info_of: Callable[[Member], AudioInfo], bad: list[Problem]
) -> Rows:
    """Return rows of the samples with readable audio; the other samples are added to `bad`.

    If the tar does not hold all texts plainly, or a sample has a segment, a link or other fields,
    the rows carry records.
    """
    with_records = any(map(_needs_record, samples))
    entries: list[Entry] = []
    records = bytearray()

    for line, audio, text in samples:
        try:
            count, rate = _length(info_of(audio), line.start, line.end)
            record = record_of(line, audio.target or audio.name) if with_records else b""
        except (AudioError, ListError) as error:
            bad.append((line.key, str(error)))
            continue

        text_at = (text.offset, text.size) if text else (0, 0)
        if with_records:
            text_at = len(records), len(record)
            records += record

        entries.append(
            Entry(line.key, count, rate, len(line.text.strip()), audio.offset, audio.size, *text_at)
        )

    rows = rows_of(entries)
    return replace(rows, records=np.frombuffer(bytes(records), np.uint8)) if with_records else rows


def _needs_record(sample: FoundSample) -> bool:
    """Tell whether a tar does not hold all of a sample plainly."""
    line, audio, text = sample
    return text is None or bool(line.extra or line.start or line.end or audio.target or text.target)


def record_of(line: RawLine, audio: str) -> bytes:
    """Return the text and other fields of a sample as the index keeps them; `audio` is the name of
    the member.

    Raises:
        ListError: the text or another field is not Unicode, or is nested too deeply.
    """
    values = [line.text, line.start, line.end, line.extra, line.key, audio]
    try:
        return json.dumps(values, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise ListError(f"its text or other fields cannot be stored ({error})") from None


def _length(info: AudioInfo, start: float, end: float | None) -> tuple[int, int]:
    """Return the number of samples of a segment, and their rate in Hz."""
    count = info.samples_between(start, end)
    if not count:
        raise AudioError(f"no audio between {start} s and {end} s")
    return count, info.sample_rate
