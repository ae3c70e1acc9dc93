"""The one place where audio is opened: headers and waveforms through libsndfile, as numpy arrays."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import soundfile

INT16_SCALE = 32768.0
"""Kaldi's features take samples on the scale of int16; libsndfile gives -1 to 1."""


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


def audio_info(source: bytes | memoryview | str) -> AudioInfo:
    """Read the header of encoded audio (bytes) or of a file (path).

    Raises:
        AudioError: not audio that libsndfile reads, or without samples.
    """
    try:
        header = soundfile.info(_openable(source))
    except (soundfile.LibsndfileError, OSError) as error:
        raise AudioError(_one_line(error)) from None
    if header.frames <= 0:
        raise AudioError(f"no samples ({header.format} {header.subtype}, {header.samplerate} Hz)")
    return AudioInfo(header.frames, header.samplerate, header.channels)


def read_audio(
    source: bytes | memoryview | str, start: float = 0.0, end: float | None = None, channel: int = 0
) -> tuple[np.ndarray, int]:
    """Decode one channel between two times (seconds; `end` None is the end).

    Returns:
        the waveform (samples,) float32 on the scale of int16, and its sample rate in Hz.

    Raises:
        AudioError: unreadable, empty, or without that channel.
    """
    try:
        with soundfile.SoundFile(_openable(source)) as file:
            if channel >= file.channels:
                raise AudioError(f"channel {channel} asked for, the audio has {file.channels} (counted from 0)")
            first, last = segment_samples(file.frames, file.samplerate, start, end)
            file.seek(first)
            samples = file.read(last - first, dtype="float32", always_2d=True)
            sample_rate = file.samplerate
    except (soundfile.LibsndfileError, OSError) as error:
        raise AudioError(_one_line(error)) from None
    if not len(samples):
        raise AudioError(f"no samples between {start} s and {end if end is not None else 'the end'}")
    return samples[:, channel] * np.float32(INT16_SCALE), sample_rate


def segment_samples(num_samples: int, sample_rate: int, start: float, end: float | None) -> tuple[int, int]:
    """First sample and one past the last of the segment `start` to `end` (seconds), within the audio."""
    last = num_samples if end is None else min(num_samples, round(end * sample_rate))
    return min(round(start * sample_rate), last), last


def _openable(source: bytes | memoryview | str) -> io.BytesIO | str:
    if not isinstance(source, str):
        return io.BytesIO(source)
    if source.lower().endswith(".raw"):
        raise AudioError(f"{source}: samples without a header; convert them to wav")
    return source


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace("Error opening <_io.BytesIO object at ", "Error opening <bytes at ")
