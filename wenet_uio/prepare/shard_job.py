"""Encode utterances, write them to a shard, and leave a receipt: the work of one worker.

The receipt has a fingerprint of the options and of path, size and time of each audio file. A later
run keeps shards whose receipt has the fingerprint that it expects.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from wenet_uio.audio.completeness import require_whole
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.encoding import OPUS_RATES, Encoding, encode_audio
from wenet_uio.audio.features import KALDI, npy_bytes, place_of, read_encoded
from wenet_uio.audio.read import OUT_OF_RESOURCES, audio_info, read_audio, read_signal
from wenet_uio.base.files import written_aside
from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.shard_index import sidecar_of
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.sample_layout import ARRAY_SUFFIXES, AUDIO_SUFFIXES
from wenet_uio.dataset.formats.tar_members import END_BYTES
from wenet_uio.prepare.shard_writer import PackedSample, bytes_in_shard, write_shard

FORM = 1
"""Version of the bytes that packing writes; after a change, every shard is made again."""
RECEIPTS = ".packed"
"""Folder of the receipts, inside the folder of the shards."""

Failure = tuple[str, str]
"""Key of an utterance, and why it was left out."""


@dataclass(frozen=True)
class Storing:
    """How audio is stored."""

    audio_format: Literal["keep"] | Encoding = "keep"
    """keep: the bytes of the file; audio that has to be cut or resampled becomes 16-bit wav."""
    resample_rate: int | None = None
    """Hz; None keeps the rate of the audio."""

    def __post_init__(self) -> None:
        known = ("keep", *get_args(Encoding))
        if self.audio_format not in known:
            raise ValueError(
                f"audio_format: expected {', '.join(known)}, found {self.audio_format!r}"
            )
        if self.audio_format == "opus" and self.resample_rate not in (None, *OPUS_RATES):
            rates = ", ".join(map(str, OPUS_RATES))
            raise ValueError(
                f"opus stores {rates} Hz: audio resampled to {self.resample_rate} Hz cannot be "
                "stored"
            )


@dataclass(frozen=True)
class ShardJob:
    """Utterances for one shard, or for several shards if they take more than `max_bytes`."""

    folder: str
    name: str
    """Path of the shard in `folder`, without .tar."""
    utterances: Sequence[RawLine]
    storing: Storing
    max_bytes: int | None = None


@dataclass(frozen=True)
class Receipt:
    """The result of a job."""

    fingerprint: str | None
    """Hash of the job and its audio files; None after an error that may be temporary: the next run
    repeats the job."""
    shards: list[dict[str, Any]]
    """`path` (in the folder), `utterances`, `seconds`, `bytes` and `sha256` of each tar."""
    bad: list[Failure]


def pack_shard(job: ShardJob) -> tuple[Receipt, bool]:
    """Do a job, unless an earlier run did the same job and its shards exist.

    Returns:
        the receipt, and whether shards were made.
    """
    earlier = earlier_receipt(job)
    if earlier is not None:
        return earlier, False

    receipt = _pack_utterances(job, _fingerprint(job))
    write_receipt(_receipt_path(job), receipt)
    return receipt, True


def earlier_receipt(job: ShardJob) -> Receipt | None:
    """Return the receipt of an earlier run that did the same job, if its shards still exist."""
    receipt = read_receipt(_receipt_path(job))
    if receipt is None or receipt.fingerprint != _fingerprint(job):
        return None

    for shard in receipt.shards:
        path = Path(job.folder, shard["path"])
        is_whole = path.is_file() and path.stat().st_size == shard["bytes"]
        if not is_whole or not sidecar_of(path).is_file():
            return None

    return receipt


def read_receipt(path: Path) -> Receipt | None:
    """Return the receipt of an earlier run; None if there is none."""
    return Receipt(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write_receipt(path: Path, receipt: Receipt) -> None:
    """Write a receipt aside and rename it."""
    with written_aside(path, "w") as file:
        json.dump(asdict(receipt), file, ensure_ascii=False)


def _receipt_path(job: ShardJob) -> Path:
    return Path(job.folder, RECEIPTS, f"{job.name}.json")


def encode_sample(utterance: RawLine, storing: Storing) -> PackedSample:
    """Read the audio of an utterance and encode it as `storing` says.

    An utterance cut from a recording takes memory for itself only, not for the recording.

    Raises:
        AudioError: the audio cannot be read, or cannot be stored that way.
        OSError: the file cannot be opened.
    """
    key, text = utterance.key, utterance.text
    # A path where only a part is read; bytes where all of the file is needed.
    source = utterance.wav if is_cut(utterance) else read_encoded(utterance.wav)
    info = audio_info(source)
    if is_cut(utterance) and not info.samples_between(utterance.start, utterance.end):
        raise AudioError(f"no audio between {utterance.start} s and {utterance.end} s")
    if info.is_features:
        return _pack_features(utterance, storing, source)

    if isinstance(source, bytes):
        require_whole(source)
        if is_copied(utterance, storing, info.sample_rate):
            suffix = _file_suffix(utterance)
            if suffix not in AUDIO_SUFFIXES:
                suffix = "wav"  # any of them, since readers go by the content
            return PackedSample(key, text, source, suffix, info.num_samples, info.sample_rate)

    samples, rate = _read_channels(source, utterance, info.channels)
    if storing.resample_rate not in (None, rate):
        samples = _resample_channels(samples, rate, storing.resample_rate)
        rate = storing.resample_rate

    encoding = "wav" if storing.audio_format == "keep" else storing.audio_format
    audio = encode_audio(samples, rate, encoding)
    return PackedSample(key, text, audio, encoding, len(samples), rate)


def _pack_features(utterance: RawLine, storing: Storing, source: bytes | str) -> PackedSample:
    """Return stored features of an utterance.

    A whole matrix keeps its bytes; of a part, which is read from the path `source`, `.npy` is made.

    Raises:
        AudioError: the features cannot be read, or `storing` says to store them in another way.
    """
    if storing != Storing():
        raise AudioError(
            "stored features are packed as they are; leave out --audio_format and --resample"
        )

    matrix, rate = read_signal(source, utterance.start, utterance.end)  # (frames, dim)
    suffix = _file_suffix(utterance)
    if isinstance(source, str):
        data, suffix = npy_bytes(matrix), "npy"
    elif source.startswith(KALDI):
        data, suffix = source, "ark"
    else:
        data = source
        if suffix not in ARRAY_SUFFIXES:
            suffix = "npy"  # any of them, since readers go by the content

    return PackedSample(utterance.key, utterance.text, data, suffix, len(matrix), rate)


def is_cut(utterance: RawLine) -> bool:
    """Tell whether an utterance is a part of its recording, or of its matrix of features."""
    has_times = bool(utterance.start) or utterance.end is not None
    return has_times or not place_of(utterance.wav).is_whole


def is_copied(utterance: RawLine, storing: Storing, sample_rate: int) -> bool:
    """Tell whether the bytes of the utterance's file are stored unchanged."""
    return (
        not is_cut(utterance)
        and storing.resample_rate in (None, sample_rate)
        and storing.audio_format in ("keep", _file_suffix(utterance))
    )


def _pack_utterances(job: ShardJob, fingerprint: str) -> Receipt:
    """Write the utterances to as many shards as `max_bytes` needs; memory holds one utterance."""
    bad: list[Failure] = []
    temporary: list[str] = []  # keys of bad utterances that the next run may be able to pack
    shards: list[dict[str, Any]] = []
    numbered_samples = _encode_utterances(job, bad, temporary)
    for number, samples in itertools.groupby(numbered_samples, key=itemgetter(0)):
        name = f"{job.name}_{number}.tar" if number else f"{job.name}.tar"
        rows, size, sha256 = write_shard(Path(job.folder, name), (sample for _, sample in samples))
        shard = {
            "path": name,
            "utterances": len(rows),
            "seconds": round(float(rows.seconds.sum()), 3),
            "bytes": size,
            "sha256": sha256,
        }
        shards.append(shard)

    assert sum(shard["utterances"] for shard in shards) + len(bad) == len(job.utterances)
    return Receipt(None if temporary else fingerprint, shards, bad)


def _encode_utterances(
    job: ShardJob, bad: list[Failure], temporary: list[str]
) -> Iterator[tuple[int, PackedSample]]:
    """Yield samples, each with the number of its shard, which grows where a shard is full.

    Args:
        bad: gets the utterances that cannot be packed.
        temporary: gets the keys of those that the next run may be able to pack.
    """
    number = 0
    size = END_BYTES  # bytes of the tar, whose end mark is counted first
    for utterance in job.utterances:
        try:
            sample = encode_sample(utterance, job.storing)._replace(extra=utterance.extra)
        except (AudioError, OSError) as error:
            bad.append((utterance.key, why_bad(utterance, error)))
            if is_temporary(error):
                temporary.append(utterance.key)
            continue

        if job.max_bytes is not None:
            sample_size = bytes_in_shard(sample)
            if size > END_BYTES and size + sample_size > job.max_bytes:
                number += 1
                size = END_BYTES
            size += sample_size

        yield number, sample


def why_bad(utterance: RawLine, error: AudioError | OSError) -> str:
    """Say why the audio of an utterance cannot be packed.

    Raises:
        OSError: `error`, if the machine has run out of memory or of file descriptors.
    """
    if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
        raise error

    reason = getattr(error, "strerror", None) or str(error)
    if not reason.startswith(utterance.wav):
        reason = f"{utterance.wav}: {reason}"
    return shown(reason)


def is_temporary(error: Exception) -> bool:
    """Tell whether the next run may read this audio: after errors of the disk or the network, but
    not if a file is missing.
    """
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError)


def file_version(path: str) -> tuple[int, int] | None:
    """Return the size and time of a file; None if it cannot be read."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _fingerprint(job: ShardJob) -> str:
    """Return a hash of all that the bytes of the shards depend on."""
    state = blake2b(repr((FORM, astuple(job.storing), job.max_bytes)).encode(), digest_size=16)
    for line in job.utterances:
        version = file_version(place_of(line.wav).path)
        values = (line.key, line.wav, line.text, line.start, line.end, line.extra, version)
        state.update(repr(values).encode())

    return state.hexdigest()


def _read_channels(
    source: bytes | str, utterance: RawLine, channels: int
) -> tuple[np.ndarray, int]:
    """Read samples (samples, channels), int16 if the file stores int16, and their rate in Hz."""
    waveforms, rate = [], 0
    for channel in range(channels):
        waveform, rate = read_audio(
            source, utterance.start, utterance.end, channel, keep_int16=True
        )
        waveforms.append(waveform)

    return np.stack(waveforms, axis=1), rate


def _file_suffix(utterance: RawLine) -> str:
    return Path(utterance.wav).suffix[1:].lower()


def _resample_channels(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    """Resample (samples, channels) from `rate` to `target` Hz, as the data chain does."""
    import torch  # takes a second and 200 MB, which few packing runs need

    from wenet_uio.dataset.chain.waveform import resample

    torch.set_num_threads(1)
    channels = torch.from_numpy(samples.T.astype(np.float32))  # (channels, samples)
    resampled = [resample(channel, rate, target).numpy() for channel in channels]
    return np.stack(resampled, axis=1)
