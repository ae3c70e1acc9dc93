"""What a worker of packing does: utterances to one shard, and a receipt by which a later run knows that it is done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wenet_uio.audio.completeness import require_whole
from wenet_uio.audio.encoding import encode_audio
from wenet_uio.audio.read import AudioError, audio_info, read_audio
from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.sample_layout import AUDIO_SUFFIXES
from wenet_uio.files import written_aside
from wenet_uio.prepare.shard_writer import END_BYTES, PackedSample, bytes_in_shard, write_shard

FORM = 1
"""Of what packing writes; another number makes every shard anew."""
RECEIPTS = ".packed"
"""Folder of the receipts within that of the shards."""

Failure = tuple[str, str]
"""Key of an utterance, and why it was left out."""


@dataclass(frozen=True)
class Storing:
    """How audio is stored."""

    audio_format: Literal["keep", "wav", "flac", "opus"] = "keep"
    """keep: the bytes as they are; what has to be cut or resampled becomes 16-bit wav."""
    resample_rate: int | None = None
    """Hz; None keeps the rate."""


@dataclass(frozen=True)
class ShardJob:
    """Utterances for one shard; for more where they take more than `max_bytes`."""

    folder: str
    name: str
    """Path in `folder`, without .tar."""
    utterances: Sequence[RawLine]
    storing: Storing
    max_bytes: int | None = None


@dataclass(frozen=True)
class Receipt:
    """What was made of a job."""

    fingerprint: str | None
    """Of the job and its audio files; None: something that may pass went wrong, and the job is to be done again."""
    shards: list[dict[str, Any]]
    """path (in the folder), utterances, seconds, bytes, sha256 of each tar."""
    bad: list[Failure]


def pack_shard(job: ShardJob) -> tuple[Receipt, bool]:
    """Do a job unless its receipt and its shards are there; gives the receipt, and whether there was anything to do."""
    path = Path(job.folder, RECEIPTS, f"{job.name}.json")
    fingerprint = _fingerprint(job)
    if path.is_file():
        receipt = Receipt(**json.loads(path.read_text(encoding="utf-8")))
        if receipt.fingerprint == fingerprint and all(_is_there(job.folder, shard) for shard in receipt.shards):
            return receipt, False
    receipt = _pack(job, fingerprint)
    with written_aside(path, "w") as file:
        json.dump(asdict(receipt), file, ensure_ascii=False)
    return receipt, True


def pack(utterance: RawLine, storing: Storing) -> PackedSample:
    """Read an utterance's audio and store it; memory is that of the utterance, not of the recording it is cut from.

    Raises:
        AudioError: it cannot be read, or not be stored that way. OSError: its file cannot be opened.
    """
    source: bytes | str = utterance.wav
    if not is_cut(utterance):
        source = Path(utterance.wav).read_bytes()
    info = audio_info(source)
    if not is_cut(utterance):
        require_whole(source)
        if is_copied(utterance, storing, info.sample_rate):
            suffix = _suffix(utterance)
            suffix = suffix if suffix in AUDIO_SUFFIXES else "wav"  # readers go by the content
            return PackedSample(utterance.key, utterance.text, source, suffix, info.num_samples, info.sample_rate)
    samples, rate = _read_channels(source, utterance, info.channels)
    if storing.resample_rate not in (None, rate):
        samples, rate = _resample(samples, rate, storing.resample_rate), storing.resample_rate
    encoding = "wav" if storing.audio_format == "keep" else storing.audio_format
    audio = encode_audio(samples, rate, encoding)
    return PackedSample(utterance.key, utterance.text, audio, encoding, len(samples), rate)


def is_cut(utterance: RawLine) -> bool:
    """Whether an utterance is a part of its recording."""
    return bool(utterance.start) or utterance.end is not None


def is_copied(utterance: RawLine, storing: Storing, sample_rate: int) -> bool:
    """Whether the bytes of its file are stored as they are."""
    return (
        not is_cut(utterance)
        and storing.resample_rate in (None, sample_rate)
        and storing.audio_format in ("keep", _suffix(utterance))
    )


def _pack(job: ShardJob, fingerprint: str) -> Receipt:
    bad: list[Failure] = []
    may_pass = False

    def samples() -> Iterator[PackedSample]:
        nonlocal may_pass
        for utterance in job.utterances:
            try:
                yield pack(utterance, job.storing)
            except (AudioError, OSError) as error:
                bad.append((utterance.key, str(error)))
                may_pass |= isinstance(error, OSError) and not isinstance(error, FileNotFoundError)

    rest = samples()
    following = next(rest, None)

    def one_shard() -> Iterator[PackedSample]:
        nonlocal following
        size = END_BYTES
        while following is not None:
            if job.max_bytes is not None:
                more = bytes_in_shard(following)
                if size > END_BYTES and size + more > job.max_bytes:
                    return
                size += more
            yield following
            following = next(rest, None)

    shards: list[dict[str, Any]] = []
    while following is not None:
        name = f"{job.name}_{len(shards)}.tar" if shards else f"{job.name}.tar"
        rows, size, sha256 = write_shard(os.path.join(job.folder, name), one_shard())
        seconds = round(float(rows.seconds.sum()), 3)
        shards.append({"path": name, "utterances": len(rows), "seconds": seconds, "bytes": size, "sha256": sha256})
    assert sum(shard["utterances"] for shard in shards) + len(bad) == len(job.utterances)
    return Receipt(None if may_pass else fingerprint, shards, bad)


def _fingerprint(job: ShardJob) -> str:
    state = blake2b(repr((FORM, astuple(job.storing), job.max_bytes)).encode(), digest_size=16)
    for line in job.utterances:
        try:
            status = os.stat(line.wav)
            version = status.st_size, status.st_mtime_ns
        except OSError:
            version = None
        state.update(repr((line.key, line.wav, line.text, line.start, line.end, version)).encode())
    return state.hexdigest()


def _is_there(folder: str, shard: dict[str, Any]) -> bool:
    path = Path(folder, shard["path"])
    return path.is_file() and path.stat().st_size == shard["bytes"] and sidecar_of(path).is_file()


def _read_channels(source: bytes | str, utterance: RawLine, channels: int) -> tuple[np.ndarray, int]:
    """Samples (samples, channels) of an utterance, int16 where they are stored so, and their rate in Hz."""
    segment = utterance.start, utterance.end
    read = [read_audio(source, *segment, channel, keep_int16=True) for channel in range(channels)]
    return np.stack([samples for samples, _ in read], axis=1), read[0][1]


def _suffix(utterance: RawLine) -> str:
    return os.path.splitext(utterance.wav)[1][1:].lower()


def _resample(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    import torch  # a second and 200 MB that other packing does without

    from wenet_uio.dataset.chain.waveform import resample

    torch.set_num_threads(1)
    channels = torch.from_numpy(samples.T.astype(np.float32))
    return np.stack([resample(channel, rate, target).numpy() for channel in channels], axis=1)
