"""Scanning a tar for its samples, with the lengths that the headers of their audio state."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.read import audio_info
from wenet_uio.dataset.corpus.index import Entry, Indexed, Problem, Rows, rows_of
from wenet_uio.dataset.formats.data_list import RawLine, ShardFiles
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.lhotse_cuts import find_cuts, is_cuts
from wenet_uio.dataset.formats.nemo_tarred import find_entries
from wenet_uio.dataset.formats.rows import find_rows
from wenet_uio.dataset.formats.sample_layout import FoundSample, Layout, find_samples
from wenet_uio.dataset.formats.tar_headers import TarBytes
from wenet_uio.dataset.formats.tar_members import Member, mapped, members_of
from wenet_uio.dataset.storage import objects

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
