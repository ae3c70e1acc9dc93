"""The index of one local shard: found by scanning the tar, kept beside the tar as `x.tar.idx`.

If the folder of the tar cannot be written, the index is in `data.list.idx.d/` beside the list, or in the cache.

A shard is a tar in which consecutive members with one key are a sample; see `formats/`. An index is made again if the
size of the tar differs, if the tar is more than a minute newer than the index, or if the manifest has changed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wenet_uio.audio.read import AudioError, AudioInfo, audio_info
from wenet_uio.dataset.corpus.index import Entry, Indexed, Problem, Rows, find_index, rows_of, write_index
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.lhotse_cuts import find_cuts, folder_beside_shar, is_cuts
from wenet_uio.dataset.formats.nemo_tarred import find_entries
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, FoundSample, Layout, find_samples
from wenet_uio.dataset.formats.tar_members import Member, read_members
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import places_of

COPY_SECONDS = 60.0
"""Seconds by which a tar may be newer than its index: copying both files gives them new times. The size of a tar alone
is not enough to tell two tars apart, because tars are padded to multiples of 10 KB."""


def shard_index(shard: str, folder: Path, layout: Layout = DEFAULT_LAYOUT) -> Indexed:
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
    for place in _places(files, folder, layout):
        found = find_index(place, one_of_many=True)
        if found is not None and _mtime(tar) <= _mtime(place) + COPY_SECONDS:
            rows, bad, meta = found
            if all(meta.get(name) == value for name, value in state.items()):
                return rows, bad
    rows, bad = scan_shard(files, layout, tar)
    write_index(_places(files, folder, layout), rows, bad, state)
    return rows, bad


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
    members, bad = read_members(tar, files.tar)
    if not members:
        return rows_of([]), bad
    with open(tar, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:

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
        bad.extend(problems)
        return _rows_of_samples(samples, info_of, bad), bad


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

    If the tar does not hold all texts plainly, or a sample has a segment or other fields, the rows carry records.
    """
    with_records = any(text is None or line.extra or line.start or line.end for line, _, text in samples)
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
            record = json.dumps([line.text, line.start, line.end, line.extra], ensure_ascii=False).encode()
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
