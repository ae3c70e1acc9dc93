"""The one place where audio is opened: headers and waveforms through libsndfile, as numpy arrays."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import numpy as np
import soundfile

INT16_SCALE = 32768.0
"""Kaldi's features take samples on the scale of int16; libsndfile gives -1 to 1."""
NEAR_END = 0.98
"""Part of the samples that must be there; headers of mp3 are off by up to a hundredth."""
STREAMED = 0x7FFF0000 * NEAR_END
"""Bytes of samples from which a header only says that its length was not known when it was written."""
CLAIMED = re.compile(r"^ *data *: (\d+) \(should be (\d+)\)", re.MULTILINE)
"""libsndfile's log of a wav whose data are not as long as its header says."""


class AudioError(ValueError):
    """Audio that cannot be read; the message says what libsndfile made of it."""


@dataclass(frozen=True)
class AudioInfo:
    """What a header says."""

    num_samples: int
    """Of one channel."""
    sample_rate: int
    """Hz."""
    channels: int


def audio_info(source: bytes | memoryview | str, to_end: bool = False) -> AudioInfo:
    """Read the header of encoded audio (bytes) or of a file (path); `to_end` looks whether its end is there, too.

    Raises:
        AudioError: not audio that libsndfile reads, without samples, or cut short.
    """
    try:
        with soundfile.SoundFile(_openable(source)) as file:
            info = AudioInfo(file.frames, file.samplerate, file.channels)
            if info.num_samples <= 0:
                raise AudioError(f"no samples ({file.format} {file.subtype}, {info.sample_rate} Hz)")
            claimed = CLAIMED.search(file.extra_info)
            if claimed and int(claimed[2]) < NEAR_END * int(claimed[1]) < STREAMED:
                raise AudioError(f"cut short: its header says {claimed[1]} bytes of samples, {claimed[2]} are there")
            if to_end:
                _require_end(file)
    except (soundfile.LibsndfileError, OSError) as error:
        raise AudioError(_one_line(error)) from None
    return info


def read_audio(
    source: bytes | memoryview | str, start: float = 0.0, end: float | None = None, channel: int = 0
) -> tuple[np.ndarray, int]:
    """Decode one channel between two times (seconds; `end` None is the end).

    Returns:
        the waveform (samples,) float32 on the scale of int16, and its sample rate in Hz.

    Raises:
        AudioError: unreadable, empty, or without that channel.
    """
    samples, sample_rate = read_channels(source, start, end)
    if channel >= samples.shape[1]:
        raise AudioError(f"channel {channel} asked for, the audio has {samples.shape[1]} (counted from 0)")
    return samples[:, channel], sample_rate


def read_channels(
    source: bytes | memoryview | str, start: float = 0.0, end: float | None = None
) -> tuple[np.ndarray, int]:
    """As `read_audio`, with all channels: (samples, channels)."""
    try:
        with soundfile.SoundFile(_openable(source)) as file:
            first, last = segment_samples(file.frames, file.samplerate, start, end)
            file.seek(first)
            samples = file.read(last - first, dtype="float32", always_2d=True)
            sample_rate = file.samplerate
    except (soundfile.LibsndfileError, OSError) as error:
        raise AudioError(_one_line(error)) from None
    if not len(samples):
        raise AudioError(f"no samples between {start} s and {end if end is not None else 'the end'}")
    return samples * np.float32(INT16_SCALE), sample_rate


def segment_samples(num_samples: int, sample_rate: int, start: float, end: float | None) -> tuple[int, int]:
    """First sample and one past the last of the segment `start` to `end` (seconds), within the audio."""
    last = num_samples if end is None else min(num_samples, round(end * sample_rate))
    return min(round(start * sample_rate), last), last


def _require_end(file: soundfile.SoundFile) -> None:
    try:
        file.seek(int(file.frames * NEAR_END))
        found = len(file.read(1))
    except soundfile.LibsndfileError as error:
        raise AudioError(f"cut short: {_one_line(error)}") from None
    if not found:
        raise AudioError(f"cut short: its header says {file.frames} samples, and the last of them are missing")


def _openable(source: bytes | memoryview | str) -> io.BytesIO | str:
    if not isinstance(source, str):
        return io.BytesIO(source)
    if source.lower().endswith(".raw"):
        raise AudioError(f"{source}: samples without a header; convert them to wav")
    return source


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace("Error opening <_io.BytesIO object at ", "Error opening <bytes at ")
