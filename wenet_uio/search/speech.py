"""Where to cut a long recording: at its pauses, and what is still too long into windows that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wenet_uio.dataset.audio import INT16_SCALE, audio_info, read_audio

FRAME = 0.01
"""Seconds of audio whose level is measured at a time."""
BLOCK = 30.0
"""Seconds that are read at a time, and that share a threshold between speech and pauses."""
LEAST_CONTRAST = 10.0
"""dB between the loud and the quiet parts of a block; with less it is all speech, or all silence."""
SILENCE = -60.0
"""dB below full scale: nothing quieter is speech."""
THRESHOLD = 0.35
"""Of the way from the quiet to the loud level of a block; louder is speech."""
CLICK = 0.05
"""Seconds: what is louder for less is no speech."""
MARGIN = 0.15
"""Seconds of pause that stay with the speech on either side."""


class Segment(NamedTuple):
    """A stretch of a recording, in seconds."""

    start: float
    end: float


def measure_levels(source: str, channel: int = 0) -> np.ndarray:
    """Level in dB of full scale of each FRAME of a file; memory holds one block of audio, and 4 bytes a frame.

    Raises:
        AudioError: the file cannot be read.
    """
    info = audio_info(source)
    seconds = info.num_samples / info.sample_rate
    size = max(1, round(FRAME * info.sample_rate))
    levels = []
    for number in range(max(1, -(-info.num_samples // round(BLOCK * info.sample_rate)))):
        waveform, _ = read_audio(source, number * BLOCK, min(seconds, (number + 1) * BLOCK), channel)
        waveform = np.pad(waveform / np.float32(INT16_SCALE), (0, -len(waveform) % size))
        energy = np.square(waveform.reshape(-1, size)).mean(axis=1)
        levels.append(10.0 * np.log10(energy + 1e-10).astype(np.float32))
    return np.concatenate(levels)


def speech_segments(levels: np.ndarray, shortest_pause: float) -> list[Segment]:
    """Stretches between pauses of at least `shortest_pause` seconds, with a margin on either side."""
    loud = np.concatenate([_is_loud(block) for block in np.split(levels, _every(round(BLOCK / FRAME), len(levels)))])
    edges = np.flatnonzero(np.diff(np.concatenate(([False], loud, [False])).astype(np.int8)))
    runs = [(start, end) for start, end in edges.reshape(-1, 2).tolist() if (end - start) * FRAME >= CLICK]
    joined: list[list[int]] = []
    for start, end in runs:
        if joined and (start - joined[-1][1]) * FRAME < shortest_pause:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    margin = min(MARGIN, shortest_pause / 2)
    last = len(levels) * FRAME
    return [Segment(max(0.0, start * FRAME - margin), min(last, end * FRAME + margin)) for start, end in joined]


def windows(segment: Segment, window: float, overlap: float) -> Iterator[Segment]:
    """A segment as windows of `window` seconds, each `overlap` seconds into the one before; the last ones share."""
    count = max(1, int(np.ceil((segment.end - segment.start - overlap) / (window - overlap) - 1e-6)))
    step = (segment.end - segment.start - overlap) / count
    for number in range(count):
        start = segment.start + number * step
        yield Segment(start, segment.end if number == count - 1 else start + step + overlap)


def _is_loud(levels: np.ndarray) -> np.ndarray:
    quiet, loud = np.percentile(levels, (10, 95))
    if loud - quiet < LEAST_CONTRAST:
        return levels > SILENCE
    return levels > max(SILENCE, quiet + THRESHOLD * (loud - quiet))


def _every(size: int, length: int) -> list[int]:
    return list(range(size, length, size))
