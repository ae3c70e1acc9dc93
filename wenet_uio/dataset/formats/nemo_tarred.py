"""NeMo's tarred data sets: audio in `audio_7.tar`, everything else about it in a manifest."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from wenet_uio.audio.read import AudioError, AudioInfo
from wenet_uio.dataset.formats.data_list import ListError, RawLine, parse_raw_line, reason_to_skip
from wenet_uio.dataset.formats.sample_layout import FoundSample, Layout
from wenet_uio.dataset.formats.tar_members import Member
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version

SUB = re.compile(r"-sub\d+(?=(\.\w+)?$)")
"""What NeMo puts into the second and later entries of one member."""
WHOLE_TOLERANCE = 0.2
"""Seconds by which an entry from the beginning may differ from its member, and still mean all of it (NeMo's leeway)."""


def find_entries(
    members: Sequence[Member],
    manifest: str,
    shard_id: int | None,
    layout: Layout,
    info_of: Callable[[Member], AudioInfo],
) -> tuple[list[FoundSample], list[tuple[str, str]]]:
    """Match the entries of a manifest with the members of their tar, in the order of the manifest.

    Several entries may name one member, each its own segment (`-subN`, `offset`, `duration`).

    Args:
        shard_id: takes the entries of this shard; None takes all, of a manifest for this tar alone.

    Returns:
        the samples, and (key, reason) of entries without audio, of audio without an entry, and of what `_skipme` says.
    """
    by_name = {member.name: member for member in members}
    samples: list[FoundSample] = []
    bad: list[tuple[str, str]] = []
    named = set()
    lines = _numbered(manifest) if shard_id is None else _by_shard(manifest).get(shard_id, [])
    for number, text in lines:
        key = f"{manifest}:{number}"
        try:
            line = parse_raw_line(text, layout.text_field)
            key = line.key
            name = line.wav if line.wav in by_name else SUB.sub("", line.wav)
            if name not in by_name:
                raise ListError(f"{line.wav} is not in the tar")
            named.add(name)
            skip = reason_to_skip(line)
            if skip:
                raise ListError(skip)
            samples.append(FoundSample(_segment(line, name, info_of(by_name[name])), by_name[name], None))
        except (ListError, AudioError) as error:
            bad.append((key, str(error)))
    bad.extend((name, f"no entry of {manifest} names it") for name in by_name if name not in named)
    return samples, bad


def entries_without_tar(manifest: str, shard_ids: Sequence[int]) -> list[tuple[str, str]]:
    """(manifest, reason) for each shard of a manifest that has no tar among `shard_ids`, and for lines of no shard."""
    bad = []
    for shard_id, lines in _by_shard(manifest).items():
        if shard_id is None:
            bad.extend((f"{manifest}:{number}", "no shard_id to say which tar holds its audio") for number, _ in lines)
        elif shard_id not in shard_ids:
            bad.append((manifest, f"{len(lines)} entries of shard {shard_id}, whose tar is not in the list"))
    return bad


def _segment(line: RawLine, name: str, info: AudioInfo) -> RawLine:
    """The line with the part of its member that it means, and with a key that raw audio would have."""
    duration = line.extra.get("duration")
    seconds = info.num_samples / info.sample_rate
    whole = duration is None or abs(float(duration) - seconds) < WHOLE_TOLERANCE
    if whole and not line.start:
        return replace(line, start=0.0, end=None)
    if line.start and line.key == f"{Path(line.wav).stem}_{line.start:g}":
        line = replace(line, key=f"{Path(name).stem}_{line.start:g}")
    return replace(line, end=None if duration is None else line.start + float(duration))


def _by_shard(manifest: str) -> dict[int | None, list[tuple[int, bytes]]]:
    """Numbered lines of a manifest of several tars by `shard_id`; None has those without one."""
    return _lines_of_shards(manifest, objects.current_version(manifest))


@lru_cache(1)
def _lines_of_shards(manifest: str, _version: Version) -> dict[int | None, list[tuple[int, bytes]]]:
    lines = defaultdict(list)
    for number, line in _numbered(manifest):
        try:
            shard_id = json.loads(line)["shard_id"]
        except (ValueError, TypeError, KeyError):
            shard_id = None
        lines[shard_id if isinstance(shard_id, int) else None].append((number, line))
    return dict(lines)


def _numbered(manifest: str) -> list[tuple[int, bytes]]:
    is_packed = manifest.partition("?")[0].endswith(".gz")
    try:
        with objects.open_whole(manifest) as stored, gzip.open(stored) if is_packed else stored as file:
            return [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ListError(f"{manifest}: breaks off or is damaged ({error})") from None
