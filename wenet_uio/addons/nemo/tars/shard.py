"""Pack entries of a manifest into one tar of NeMo's, with its manifest: the work of one worker.

Names are those of NeMo's converter: `/data/a.b/x.wav` is `_data_a_b_x.wav` in the tar. The second
entry of a member is `…-sub1.wav`, the third `…-sub2.wav`. Entries keep all fields, and get
`shard_id` and `key`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

import numpy as np

from wenet_uio.audio.decoders import AudioError, why_past_the_end
from wenet_uio.audio.encoding import Encoding
from wenet_uio.base.files import written_aside
from wenet_uio.dataset.formats.data_list import RawLine, locate, parse_raw_line
from wenet_uio.dataset.formats.tar_members import END_BYTES
from wenet_uio.prepare.shard_job import (
    RECEIPTS,
    Failure,
    Receipt,
    Storing,
    encode_sample,
    file_version,
    is_cut,
    is_temporary,
    read_receipt,
    why_bad,
    write_receipt,
)
from wenet_uio.prepare.shard_writer import PackedSample, TarWriter

FORM = 1
"""Version of the bytes that packing writes; after a change, every shard is made again."""
MANIFESTS = "sharded_manifests"
DIGITS = 6
"""Seconds are written with at most this many decimal places."""


@dataclass(frozen=True)
class NemoStoring:
    """How the audio of entries is stored."""

    slice_with_offset: bool = False
    """Store the part of a recording that an entry names. False: the whole recording, once in each
    tar that needs it."""
    force_codec: Encoding | None = None
    """None keeps the bytes of the files."""
    sort_in_shards: bool = False
    """Sort the entries of a tar by path and start."""
    shard_manifests: bool = True
    """Keep a manifest for each tar."""

    def __post_init__(self) -> None:
        if self.force_codec is not None and self.force_codec not in get_args(Encoding):
            raise ValueError(
                f"force_codec (option, or metadata.yaml of the set): expected "
                f"{', '.join(get_args(Encoding))}, found {self.force_codec!r}"
            )


@dataclass(frozen=True)
class NemoOptions:
    """How a manifest is divided into tars."""

    num_shards: int
    """Tars of the set, or of each bucket."""
    min_duration: float | None = None
    """Seconds; shorter entries are left out."""
    max_duration: float | None = None
    """Seconds; entries of this length and longer ones are left out, as in NeMo."""
    shuffle_seed: int | None = None
    """Shuffle the entries first; None keeps their order."""
    keep_files_together: bool = False
    """All entries of an audio file go to one tar."""
    storing: NemoStoring = field(default_factory=NemoStoring)


@dataclass(frozen=True)
class NemoShardJob:
    """Entries of a manifest for one tar."""

    folder: str
    number: int
    """`shard_id`."""
    manifest: str
    offsets: np.ndarray
    """Bytes from the start of the manifest to each entry."""
    sizes: np.ndarray
    """Bytes of each entry."""
    keys: tuple[str, ...] | None
    """Key of each entry; None: the keys that the lines give."""
    storing: NemoStoring

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def tar(self) -> Path:
        """Path of the tar."""
        return Path(self.folder, f"audio_{self.number}.tar")

    @property
    def shard_manifest(self) -> Path:
        """Path of the manifest of this tar."""
        folder = MANIFESTS if self.storing.shard_manifests else RECEIPTS
        return Path(self.folder, folder, f"manifest_{self.number}.json")

    @property
    def receipt(self) -> Path:
        """Path of the receipt."""
        return Path(self.folder, RECEIPTS, f"audio_{self.number}.json")


def flat_name(path: str) -> str:
    """Return the name of an audio file in the tar.

    `/` and `.` become `_`, and `-sub`, which marks repeats, does not occur.
    """
    base, suffix = os.path.splitext(path)  # noqa: PTH122 - a URI is no path
    return base.replace("/", "_").replace(".", "_").replace("-sub", "_sub") + suffix


def pack_nemo_shard(job: NemoShardJob) -> tuple[Receipt, bool]:
    """Do a job, unless an earlier run did the same job and its files exist.

    Returns:
        the receipt, and whether the tar was made.
    """
    lines = list(_read_lines(job))
    if job.storing.sort_in_shards:
        lines.sort(key=lambda line: (line.wav, line.start))

    fingerprint = _job_fingerprint(job, lines)
    earlier = read_receipt(job.receipt)
    if earlier and earlier.fingerprint == fingerprint and _is_made(job, earlier):
        return earlier, False

    receipt = _Packing(job).pack(lines, fingerprint)
    write_receipt(job.receipt, receipt)
    return receipt, True


def _is_made(job: NemoShardJob, receipt: Receipt) -> bool:
    """Tell whether the files of an earlier run still exist."""
    sizes = [shard["bytes"] for shard in receipt.shards]
    return job.shard_manifest.is_file() and job.tar.is_file() and [job.tar.stat().st_size] == sizes


def _read_lines(job: NemoShardJob) -> Iterator[RawLine]:
    """Yield the entries, with the audio where it is."""
    spans = zip(job.offsets.tolist(), job.sizes.tolist(), strict=True)
    with open(job.manifest, "rb") as file:
        for number, (offset, size) in enumerate(spans):
            file.seek(offset)
            line = parse_raw_line(file.read(size))
            yield line if job.keys is None else replace(line, key=job.keys[number])


def _job_fingerprint(job: NemoShardJob, lines: list[RawLine]) -> str:
    """Return a hash of all that the bytes of the tar depend on."""
    state = blake2b(repr((FORM, job.storing, job.number)).encode(), digest_size=16)
    for line in lines:
        state.update(repr((line, file_version(locate(line.wav, job.manifest)))).encode())
    return state.hexdigest()


class _Packing:
    """Writes one tar and its manifest."""

    def __init__(self, job: NemoShardJob) -> None:
        self._job = job
        self._storing = Storing(job.storing.force_codec or "keep")
        self._members: dict[str, str] = {}
        """Path (and part) of stored audio -> name of its member."""
        self._entries: dict[str, int] = {}
        """Name of a member -> entries that name it."""
        self._seconds: dict[str, float] = {}
        """Name of a member -> its length."""

    def pack(self, lines: list[RawLine], fingerprint: str) -> Receipt:
        """Write the tar, then the manifest; audio that cannot be read is left out and reported."""
        bad: list[Failure] = []
        temporary = False
        with (
            written_aside(self._job.tar) as file,
            written_aside(self._job.shard_manifest, "w") as manifest,
        ):
            tar = TarWriter(file)
            seconds = 0.0
            for line in lines:
                try:
                    entry = self._add_entry(line, tar)
                except (AudioError, OSError) as error:
                    bad.append((line.key, why_bad(line, error)))
                    temporary |= is_temporary(error)
                    continue

                seconds += entry["duration"]
                manifest.write(json.dumps(entry, ensure_ascii=False) + "\n")

            tar.write(b"\0" * END_BYTES)

        shard = {
            "path": self._job.tar.name,
            "utterances": len(lines) - len(bad),
            "seconds": round(seconds, 3),
            "bytes": tar.size,
        }
        if temporary:  # the next run tries again
            return Receipt(None, [shard], bad)
        return Receipt(fingerprint, [shard], bad)

    def _add_entry(self, line: RawLine, tar: TarWriter) -> dict[str, Any]:
        """Return the entry of a line in the manifest.

        Its audio is added to the tar unless the tar has it.
        """
        is_slice = is_cut(line) and self._job.storing.slice_with_offset
        stored = replace(line, wav=locate(line.wav, self._job.manifest))
        if not is_slice:
            stored = replace(stored, start=0.0, end=None)

        audio = f"{stored.wav} {stored.start} {stored.end}"
        if audio in self._members:
            sample = None
            seconds = self._seconds[self._members[audio]]
        else:
            sample = encode_sample(stored, self._storing)
            seconds = sample.num_samples / sample.sample_rate

        # Checked before the audio is added: a bad entry leaves nothing in the tar.
        available = seconds if is_slice else seconds - line.start
        duration = self._entry_duration(line, available)
        reason = why_past_the_end(line.start, line.start + duration, min(available, duration))
        if reason is not None:
            raise AudioError(f"{line.wav}: {reason}")
        if sample is not None:
            self._store_audio(sample, line, audio, tar)

        entry = {
            "audio_filepath": self._next_entry_name(self._members[audio]),
            "duration": duration,
        }
        if is_cut(line) and not is_slice:
            entry["offset"] = line.start

        extra = {key: value for key, value in line.extra.items() if key not in entry}
        our_fields = {"text": line.text, "shard_id": self._job.number, "key": line.key}
        return {**entry, **extra, **our_fields}

    def _next_entry_name(self, member: str) -> str:
        """Return the name by which the next entry of a member names it."""
        repeats = self._entries[member]
        self._entries[member] += 1
        base, suffix = os.path.splitext(member)  # noqa: PTH122 - a name, not a path
        return f"{base}-sub{repeats}{suffix}" if repeats else member

    def _store_audio(self, sample: PackedSample, line: RawLine, part: str, tar: TarWriter) -> None:
        """Add audio to the tar under a name of its own."""
        base, suffix = os.path.splitext(flat_name(line.wav))  # noqa: PTH122 - a name, not a path
        seconds = sample.num_samples / sample.sample_rate
        is_slice = is_cut(line) and self._job.storing.slice_with_offset
        if is_slice:
            base = f"{base}_{line.start:.{DIGITS}g}_{seconds:.{DIGITS}g}".replace(".", "_")
        if is_slice or self._job.storing.force_codec is not None:
            suffix = f".{sample.suffix}"

        name, number = base + suffix, 1
        while name in self._entries:  # another path with the same flat name
            number += 1
            name = f"{base}_{number}{suffix}"

        tar.append(name, sample.audio)
        self._members[part] = name
        self._entries[name] = 0
        self._seconds[name] = seconds

    def _entry_duration(self, line: RawLine, available: float) -> float:
        """Return seconds of an entry: as the line states them, else the `available` ones after its
        start.
        """
        stated_seconds = line.extra.get("duration")
        if line.end is not None:
            length = line.end - line.start
            # The stated number has no rounding error of start + duration - start.
            if stated_seconds is not None and abs(length - float(stated_seconds)) < 1e-6:
                return float(stated_seconds)
            return round(length, DIGITS)

        # The duration of a line with a start may be that of the whole file.
        if stated_seconds is not None and not line.start:
            return float(stated_seconds)

        return round(available, DIGITS)
