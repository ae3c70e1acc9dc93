"""Shards: plain tar files in which consecutive members of one basename are a sample, with an index beside each."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wenet_uio.audio.read import AudioError, AudioInfo, audio_info, segment_samples
from wenet_uio.dataset.corpus.columns import is_index, read_columns, write_columns
from wenet_uio.dataset.corpus.index import Entry, Rows, rows_of
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.lhotse_cuts import find_cuts, folder_beside_shar, is_cuts
from wenet_uio.dataset.formats.nemo_tarred import find_entries
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, FoundSample, Layout, find_samples
from wenet_uio.dataset.formats.tar_members import Member, read_members
from wenet_uio.dataset.storage import objects
from wenet_uio.files import written_aside

COPY_SECONDS = 60.0
"""By which a tar may be newer than its index: copies of both are dated as they are made. Tars are padded to 10 KB, so
their size alone does not tell one from another."""


def shard_index(shard: str, layout: Layout = DEFAULT_LAYOUT) -> tuple[Rows, list[tuple[str, str]]]:
    """Index of a local shard (`str(ShardFiles)`), made and kept beside it where it is missing or its files changed.

    Returns:
        the rows, and a list of (key, reason) of the samples that cannot be used.
    """
    files = ShardFiles.parse(shard)
    tar, manifest = (path and objects.without_scheme(path) for path in files[:2])
    files = files._replace(tar=tar, manifest=manifest)
    sidecar, state = sidecar_of(tar, manifest, layout), _state_of(files)
    if is_index(sidecar) and os.path.getmtime(tar) <= os.path.getmtime(sidecar) + COPY_SECONDS:
        columns, meta = read_columns(sidecar, one_of_many=True)
        if all(meta.get(name) == value for name, value in state.items()):
            return Rows(**columns), [tuple(item) for item in meta["bad"]]
    rows, bad = scan_shard(files, layout, tar)
    write_sidecar(sidecar, rows, state, bad)
    return rows, bad


def scan_shard(files: ShardFiles, layout: Layout, tar: str) -> tuple[Rows, list[tuple[str, str]]]:
    """Find the samples of a shard, with its manifest where it has one, and read the headers of their audio.

    Args:
        tar: the shard's tar, or a local copy of it.

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

        @cache  # a member may have several segments
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
    """Where the index of a shard is: beside its tar; beside its manifest, where that has the texts.

    Lhotse takes every file in the folder of a Shar for a part of it, so that ours are in a folder beside that.
    """
    if manifest is None:
        return Path(f"{tar}{layout.suffix}.idx")
    folder = folder_beside_shar(manifest) if is_cuts(manifest) else Path(manifest).parent
    return folder / f"{os.path.basename(manifest)}.{os.path.basename(tar)}{layout.suffix}.idx"


def _rows_of_samples(
    samples: Sequence[FoundSample], info_of: Callable[[Member], AudioInfo], bad: list[tuple[str, str]]
) -> Rows:
    """Rows of the samples whose audio can be read; the others go to `bad`.

    Where a sample is more than audio and text as they stand in the tar, the rows carry a record of each.
    """
    with_records = any(text is None or line.extra or line.start or line.end for line, _, text in samples)
    entries: list[Entry] = []
    records = bytearray()
    for line, audio, text in samples:
        try:
            info = info_of(audio)
            first, last = segment_samples(info.num_samples, info.sample_rate, line.start, line.end)
            if last <= first:
                raise AudioError(f"no audio between {line.start} s and {line.end} s")
        except AudioError as error:
            bad.append((line.key, str(error)))
            continue
        text_at = (text.offset, text.size) if text else (0, 0)
        if with_records:
            record = json.dumps([line.text, line.start, line.end, line.extra], ensure_ascii=False).encode()
            text_at = len(records), len(record)
            records += record
        length = len(line.text.strip())
        entries.append(Entry(line.key, last - first, info.sample_rate, length, audio.offset, audio.size, *text_at))
    rows = rows_of(entries)
    return replace(rows, records=np.frombuffer(bytes(records), np.uint8)) if with_records else rows


def _state_of(files: ShardFiles) -> dict[str, Any]:
    """What tells that an index still fits its files."""
    state: dict[str, Any] = {"tar_bytes": os.path.getsize(files.tar)}
    if files.manifest:
        status = os.stat(files.manifest)
        state |= {"manifest": [status.st_size, status.st_mtime_ns], "shard_id": files.shard_id}
    return state


def write_sidecar(sidecar: Path, rows: Rows, state: dict[str, Any], bad: list[tuple[str, str]]) -> None:
    with written_aside(sidecar) as file:
        write_columns(file, rows.columns(), {**state, "bad": bad})
