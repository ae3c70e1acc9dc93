"""NeMo's tarred data sets: the tar `audio_7.tar` contains the audio, a manifest describes it.

The manifest is either `manifest_7.json` for this tar alone, or `tarred_audio_manifest.json` for all
tars. In a manifest for all tars, the `shard_id` of an entry is the last number in the name of its
tar.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.dataset.formats.data_list import (
    PACKED_ERRORS,
    RawLine,
    opened_manifest,
    parse_raw_line,
    reason_to_skip,
    with_distinct_keys,
)
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import key_of_audio
from wenet_uio.dataset.formats.sample_layout import TEXT_SUFFIXES, FoundSample, Layout
from wenet_uio.dataset.formats.tar_members import Member
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.versions import Version

SUB = re.compile(r"-sub\d+(?=(\.\w+)?$)")
"""Suffix of the audio name in the second and later entries of one member: `x-sub1.wav` is in
`x.wav`."""
_TEXTS = tuple(f".{suffix}" for suffix in TEXT_SUFFIXES)
WHOLE_TOLERANCE = 0.2
"""Seconds. An entry without offset means its whole member unless their durations differ by this or
more, as in NeMo."""


def find_entries(
    members: Sequence[Member],
    manifest: str,
    shard_id: int | None,
    layout: Layout,
    info_of: Callable[[Member], AudioInfo],
) -> tuple[list[FoundSample], list[tuple[str, str]]]:
    """Match the entries of a manifest with the members of their tar, in the order of the manifest.

    Several entries may name one member; each of them is a segment (`-subN`, `offset`, `duration`).

    Args:
        shard_id: use the entries of this shard; None uses all entries of a manifest for this tar
            alone.
        info_of: reads the header of a member.

    Returns:
        the samples, and (key, reason) of entries without audio, of audio without an entry, and of
        entries that `_skipme` leaves out.
    """
    by_name = {member.name: member for member in members}
    samples: list[FoundSample] = []
    bad: list[tuple[str, str]] = []
    named = set()
    entries = (
        manifest_lines(manifest) if shard_id is None else _shard_lines(manifest).get(shard_id, [])
    )
    for number, text in entries:
        key = f"{manifest}:{number}"
        try:
            line = parse_raw_line(text, layout.text_field)
            key = line.key
            name = line.wav if line.wav in by_name else SUB.sub("", line.wav)
            if name not in by_name:
                raise ListError(f"{line.wav} is not in the tar")

            named.add(name)
            skip = reason_to_skip(line.extra)
            if skip:
                raise ListError(skip)

            segment = _segment(line, name, info_of(by_name[name]))
            samples.append(FoundSample(segment, audio=by_name[name], text=None))
        except (ListError, AudioError) as error:
            bad.append((key, str(error)))

    # Texts beside the audio are replaced by the manifest.
    unnamed = (name for name in by_name if name not in named and not name.lower().endswith(_TEXTS))
    bad.extend((name, f"no entry of {manifest} names it") for name in unnamed)
    lines = with_distinct_keys([sample.line for sample in samples])
    return [sample._replace(line=line) for sample, line in zip(samples, lines, strict=True)], bad


def entries_without_tar(manifest: str, shard_ids: Sequence[int]) -> list[tuple[str, str]]:
    """Return (place, reason) of each shard of a manifest that is not in `shard_ids`, and of each
    entry without a shard_id.
    """
    bad = []
    for shard_id, lines in _shard_lines(manifest).items():
        if shard_id is None:
            bad.extend(
                (f"{manifest}:{number}", "no shard_id, so that the tar with its audio is unknown")
                for number, _ in lines
            )
        elif shard_id not in shard_ids:
            bad.append(
                (
                    manifest,
                    f"{len(lines)} entries of shard {shard_id}, whose tar is not in the list",
                )
            )

    return bad


def _segment(line: RawLine, name: str, info: AudioInfo) -> RawLine:
    """Return the line with start and end in its member, and with the key that the same line has in
    a raw list.
    """
    duration = line.extra.get("duration")
    seconds = info.num_samples / info.sample_rate
    is_as_long = duration is None or abs(float(duration) - seconds) < WHOLE_TOLERANCE
    if is_as_long and not line.start:  # the whole member
        return replace(line, start=0.0, end=None)
    if line.start and line.is_named_by_audio:
        line = replace(line, key=key_of_audio(name, line.start))

    return replace(line, end=None if duration is None else line.start + float(duration))


def _shard_lines(manifest: str) -> dict[int | None, list[tuple[int, bytes]]]:
    """Return numbered lines of a manifest for several tars, by `shard_id`; lines without a shard_id
    are under None.
    """
    return _lines_of_shards(manifest, objects.current_version(manifest))


# The shards of a list are indexed one after the other and share this manifest: reading the manifest
# again for each would take time that grows with the square of its size. A single manifest is kept;
# the version notices a change.
@lru_cache(1)
def _lines_of_shards(manifest: str, _version: Version) -> dict[int | None, list[tuple[int, bytes]]]:
    """Return (number, line) of the lines of a manifest by shard_id; None: they state no valid one."""
    lines = defaultdict(list)
    for number, line in manifest_lines(manifest):
        try:
            shard_id = json.loads(line)["shard_id"]
        except (ValueError, TypeError, KeyError, RecursionError):
            shard_id = None
        lines[shard_id if isinstance(shard_id, int) else None].append((number, line))

    return dict(lines)


def manifest_lines(manifest: str) -> list[tuple[int, bytes]]:
    """Return (number, line) of the lines of a manifest, also a packed one, without blank lines.

    Raises:
        ListError: a packed manifest is damaged.
    """
    try:
        with opened_manifest(manifest) as file:
            return [(number, line) for number, line in enumerate(file, 1) if line.strip()]
    except PACKED_ERRORS as error:
        raise ListError(f"{manifest}: cut short or damaged ({error})") from None
