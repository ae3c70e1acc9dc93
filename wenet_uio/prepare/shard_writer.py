"""Write a shard: a tar of samples, and the index beside it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from wenet_uio.base.files import written_aside
from wenet_uio.dataset.corpus.index import Entry, Rows, rows_of, write_index
from wenet_uio.dataset.corpus.shard_index import pages_of, record_of, sidecar_of
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.tar_headers import BLOCK
from wenet_uio.dataset.formats.tar_members import END_BYTES


class PackedSample(NamedTuple):
    """A sample as a shard stores it."""

    key: str
    text: str
    audio: bytes
    """Encoded audio."""
    suffix: str
    """Suffix of the audio member, without the dot."""
    num_samples: int
    """Samples of one channel."""
    sample_rate: int
    """Hz."""
    extra: Mapping[str, Any] = MappingProxyType({})
    """Other fields; they are stored in a member `.json`, if there are any."""


class Written(NamedTuple):
    """Index rows, size and digest of a shard that was written."""

    rows: Rows
    """One row per sample, as in the index."""
    size: int
    """Bytes of the tar."""
    sha256: str


def write_shard(path: str | Path, samples: Iterable[PackedSample]) -> Written:
    """Write a tar and its index; the same samples give the same bytes.

    Both files appear only when they are complete. Samples are taken and written one at a time.
    """
    entries: list[Entry] = []
    records: list[bytes] = []
    has_fields = False

    with written_aside(path) as file:
        tar = TarWriter(file)
        for sample in samples:
            text = sample.text.encode()
            text_offset = tar.append(f"{sample.key}.txt", text)
            name = f"{sample.key}.{sample.suffix}"
            audio_offset = tar.append(name, sample.audio)
            if sample.extra:
                tar.append(f"{sample.key}.json", _encode_fields(sample.extra))
                has_fields = True

            # The index holds text and fields as a record, if any sample has fields.
            line = RawLine(sample.key, name, sample.text, extra=dict(sample.extra))
            records.append(record_of(line, name))
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

    rows = _rows_and_records(entries, records) if has_fields else rows_of(entries)
    rows = replace(rows, tar_pages=pages_of(path))
    write_index([sidecar_of(path)], rows, [], {"tar_bytes": tar.size})
    return Written(rows, tar.size, tar.digest.hexdigest())


def _rows_and_records(entries: list[Entry], records: list[bytes]) -> Rows:
    """Return rows with the records, which hold texts and other fields, as a scan of the tar gives
    them: the text of an entry is then a span of the joined records, and not of the tar.
    """
    placed: list[Entry] = []
    offset = 0
    for entry, record in zip(entries, records, strict=True):
        placed.append(entry._replace(text_offset=offset, text_size=len(record)))
        offset += len(record)

    return replace(rows_of(placed), records=np.frombuffer(b"".join(records), np.uint8))


def _encode_fields(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(fields), ensure_ascii=False).encode()


def bytes_in_shard(sample: PackedSample) -> int:
    """Return bytes that a sample takes in a tar: its members with headers and padding."""
    members = [(sample.suffix, len(sample.audio)), ("txt", len(sample.text.encode()))]
    if sample.extra:
        members.append(("json", len(_encode_fields(sample.extra))))
    return sum(member_bytes(f"{sample.key}.{suffix}", size) for suffix, size in members)


def member_bytes(name: str, size: int) -> int:
    """Return bytes that a member of `size` bytes takes in a tar, with its header and padding."""
    return len(_header(name, size)) + size + -size % BLOCK


class TarWriter:
    """Writes members, with size and digest of the bytes, so that the tar need not be read again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        """Bytes written so far."""
        self.digest = hashlib.sha256()

    def append(self, name: str, data: bytes) -> int:
        """Write one member; return the offset of its data."""
        self.write(_header(name, len(data)))
        offset = self.size
        self.write(data)
        self.write(b"\0" * (-len(data) % BLOCK))

        return offset

    def write(self, data: bytes) -> None:
        """Write bytes that belong to no member."""
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT)
