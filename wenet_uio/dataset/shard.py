"""Shards: plain tar files in which consecutive members of one basename are a sample, with an index beside each."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from wenet_uio.dataset.audio import AudioError, audio_info
from wenet_uio.dataset.columns import is_index, read_columns, write_columns
from wenet_uio.dataset.index import Entry, Rows, rows_of
from wenet_uio.files import written_aside

AUDIO_SUFFIXES = frozenset(
    ("wav", "flac", "mp3", "ogg", "opus", "m4a", "aac", "wma", "webm", "aif", "aiff", "au", "sph", "w64", "caf")
)
"""What the suffix of an audio member may be."""
BLOCK = tarfile.BLOCKSIZE
END_BYTES = 2 * BLOCK
"""Zeros that end a tar."""


class PackedSample(NamedTuple):
    """A sample ready to be written into a shard."""

    key: str
    text: str
    audio: bytes
    """Encoded."""
    suffix: str
    """Of the audio member, without the dot."""
    num_samples: int
    sample_rate: int


def write_shard(path: str | Path, samples: Iterable[PackedSample]) -> Rows:
    """Write a tar and its index, both aside and renamed; the same samples give the same bytes.

    Returns:
        the index of what was written.
    """
    entries: list[Entry] = []
    with written_aside(path) as tar:
        for sample in samples:
            text = sample.text.encode()
            text_offset = _append(tar, f"{sample.key}.txt", text)
            audio_offset = _append(tar, f"{sample.key}.{sample.suffix}", sample.audio)
            entries.append(
                Entry(
                    key=sample.key,
                    num_samples=sample.num_samples,
                    sample_rate=sample.sample_rate,
                    text_length=len(sample.text.strip()),
                    audio_offset=audio_offset,
                    audio_size=len(sample.audio),
                    text_offset=text_offset,
                    text_size=len(text),
                )
            )
        tar.write(b"\0" * END_BYTES)
        size = tar.tell()
    rows = rows_of(entries)
    _write_sidecar(path, rows, size, bad=[])
    return rows


def bytes_in_shard(sample: PackedSample) -> int:
    """What a sample takes of a tar."""
    members = ((sample.suffix, len(sample.audio)), ("txt", len(sample.text.encode())))
    return sum(bytes_of_member(f"{sample.key}.{suffix}", size) for suffix, size in members)


def bytes_of_member(name: str, size: int) -> int:
    """What `size` bytes take of a tar as a member of that name."""
    return len(_header(name, size)) + size + -size % BLOCK


def shard_index(path: str) -> tuple[Rows, list[tuple[str, str]]]:
    """Index of a local shard, made (and kept beside it) where it is missing or the tar has changed.

    Returns:
        the rows, and a list of (key, reason) of the samples that cannot be used.
    """
    size = os.path.getsize(path)
    if is_index(sidecar_of(path)):
        columns, meta = read_columns(sidecar_of(path))
        if meta["tar_bytes"] == size:
            return Rows(**columns), [tuple(item) for item in meta["bad"]]
    entries, bad = scan_shard(path)
    rows = rows_of(entries)
    _write_sidecar(path, rows, size, bad)
    return rows, bad


def scan_shard(path: str) -> tuple[list[Entry], list[tuple[str, str]]]:
    """Walk the headers of a tar and of the audio in it.

    Returns:
        the entries, and (key, reason) of each sample without audio, without text, or with audio that cannot be read.
    """
    entries: list[Entry] = []
    bad: list[tuple[str, str]] = []
    members: dict[str, tarfile.TarInfo] = {}
    current = ""
    with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:

        def finish() -> None:
            if not members:
                return
            try:
                entries.append(_entry(file, current, members))
            except AudioError as error:
                bad.append((current, str(error)))

        for member in tar:
            if not member.isfile():
                continue
            key, _, suffix = member.name.rpartition(".")
            if key != current:
                finish()
                current, members = key, {}
            members[suffix.lower()] = member
        finish()
    return entries, bad


def sidecar_of(path: str | Path) -> Path:
    """Where the index of a shard is."""
    return Path(f"{path}.idx")


def _entry(file, key: str, members: dict[str, tarfile.TarInfo]) -> Entry:
    suffix = next((name for name in members if name in AUDIO_SUFFIXES), None)
    if suffix is None or "txt" not in members:
        missing = "text (.txt)" if suffix else "audio"
        raise AudioError(f"no {missing} among its members: {', '.join(members)}")
    audio, text = members[suffix], members["txt"]
    file.seek(audio.offset_data)
    info = audio_info(file.read(audio.size))
    file.seek(text.offset_data)
    length = len(file.read(text.size).decode().strip())
    return Entry(
        key, info.num_samples, info.sample_rate, length, audio.offset_data, audio.size, text.offset_data, text.size
    )


def _append(tar, name: str, data: bytes) -> int:
    """Write one member; returns the offset of its data."""
    tar.write(_header(name, len(data)))
    offset = tar.tell()
    tar.write(data)
    tar.write(b"\0" * (-len(data) % BLOCK))
    return offset


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT)


def _write_sidecar(path: str | Path, rows: Rows, tar_bytes: int, bad: list[tuple[str, str]]) -> None:
    with written_aside(sidecar_of(path)) as file:
        write_columns(file, rows.columns(), {"tar_bytes": tar_bytes, "bad": bad})
