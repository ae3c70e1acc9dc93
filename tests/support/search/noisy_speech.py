"""Recordings of real speech with pauses and added noise, at the levels that a test asks for."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.read import read_audio


def noise(samples: int, level: float, tilt: float = 0.0, seed: int = 0) -> np.ndarray:
    """Noise (samples,) of `level` dB of full scale; the amplitude falls with frequency to the power
    of `tilt`.
    """
    return _shape(samples, tilt, seed) * 10 ** (level / 20)


@lru_cache(maxsize=2)  # tests take the same noise at several levels
def _shape(samples: int, tilt: float, seed: int) -> np.ndarray:
    """`noise` with a standard deviation of 1."""
    size = 1 << (samples - 1).bit_length()  # a transform of another length takes up to a second
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(size=size))
    spectrum[1:] *= np.arange(1, len(spectrum)) ** -tilt
    spectrum[: round(20 * size / 8000)] = 0.0  # no microphone records the lowest frequencies
    made = np.fft.irfft(spectrum, size)[:samples]
    return made / made.std()


def spread(paths: list, pause: float) -> tuple[np.ndarray, list[tuple[float, float]], int]:
    """Utterances with `pause` seconds of silence before each and at the end.

    Returns:
        samples (samples,) between -1 and 1, start and end of each utterance in seconds, and the
        sample rate.
    """
    parts, times, at = [], [], 0
    for path in paths:
        waveform, rate = read_audio(str(path))
        at += round(pause * rate)
        times.append((at / rate, (at + len(waveform)) / rate))
        at += len(waveform)
        parts += [np.zeros(round(pause * rate)), waveform / INT16_SCALE]
    return np.concatenate([*parts, np.zeros(round(pause * rate))]), times, rate


def overlaps(segments: list, times: list[tuple[float, float]]) -> list[float]:
    """Share of each utterance that the segments cover."""
    return [
        sum(max(0.0, min(end, last) - max(start, first)) for start, end in segments)
        / (last - first)
        for first, last in times
    ]
