"""Where to cut a long recording: at its pauses, and what is still too long into windows that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wenet_uio.audio.read import INT16_SCALE, Channel, audio_info, read_audio

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
FADE = 0.05
"""Likewise: what is louder, and next to speech, may be a soft beginning or end of it."""
LONGEST_FADE = 0.15
"""Seconds of that, on either side of the speech."""
CLICK = 0.05
"""Seconds: what is louder for less is no speech."""
LEAST_PAUSE = 0.1
"""Seconds of quiet that may cut what is too long; shorter ones are within words."""
MARGIN = 0.01
"""Seconds that are heard beyond the speech, on either side."""


class Segment(NamedTuple):
    """A stretch of a recording, in seconds."""

    start: float
    end: float


def measure_levels(source: str, channel: Channel = 0) -> np.ndarray:
    """Level in dB of full scale of each FRAME of a file; memory holds one block of audio, and 4 bytes a frame.

    Raises:
        AudioError: the file cannot be read.
    """
    info = audio_info(source)
    seconds = info.num_samples / info.sample_rate
    levels = []
    for number in range(max(1, -(-info.num_samples // round(BLOCK * info.sample_rate)))):
        waveform, _ = read_audio(source, number * BLOCK, min(seconds, (number + 1) * BLOCK), channel)
        # Frames of 22050 Hz begin 220 or 221 samples apart: equal ones would run ahead of the clock.
        frames = np.ceil(len(waveform) / (FRAME * info.sample_rate) - 1e-6)
        starts = (np.arange(frames) * FRAME * info.sample_rate).astype(np.int64)
        energy = np.add.reduceat(np.square(waveform / np.float32(INT16_SCALE)), starts)
        energy /= np.diff(starts, append=len(waveform))
        levels.append(10.0 * np.log10(energy + 1e-10).astype(np.float32))
    return np.concatenate(levels)


def speech_segments(levels: np.ndarray, shortest_pause: float, longest: float = np.inf) -> list[Segment]:
    """Stretches between pauses of at least `shortest_pause` seconds, with their soft edges and a margin.

    What is longer than `longest` seconds is cut at its longest pause, and again, as long as that has LEAST_PAUSE.
    """
    blocks = np.split(levels, _every(round(BLOCK / FRAME), len(levels)))
    bounds = [_thresholds(block) for block in blocks]
    loud = _runs(np.concatenate([block > speech for block, (speech, _) in zip(blocks, bounds, strict=True)]))
    audible = _runs(np.concatenate([block > fade for block, (_, fade) in zip(blocks, bounds, strict=True)]))
    loud = loud[(loud[:, 1] - loud[:, 0]) * FRAME >= CLICK]
    speech = _between_pauses(loud, round(shortest_pause / FRAME), longest / FRAME)
    starts, ends = _with_edges(speech, audible)
    return list(map(Segment, starts.clip(min=0.0).tolist(), ends.clip(max=len(levels) * FRAME).tolist()))


def _with_edges(speech: np.ndarray, audible: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends in seconds of speech (N, 2), frames, with what is audible around it and the margin."""
    place = np.searchsorted(audible[:, 0], speech - [0, 1], side="right") - 1  # all that is loud is audible
    fades = np.stack((speech[:, 0] - audible[place[:, 0], 0], audible[place[:, 1], 1] - speech[:, 1]), axis=1)
    wider = np.minimum(fades * FRAME, LONGEST_FADE) + MARGIN
    room = np.full(len(speech) + 1, np.inf)  # half of each pause, and outside
    room[1:-1] = (speech[1:, 0] - speech[:-1, 1]) * FRAME / 2
    starts = speech[:, 0] * FRAME - np.minimum(wider[:, 0], room[:-1])
    return starts, speech[:, 1] * FRAME + np.minimum(wider[:, 1], room[1:])


def _between_pauses(runs: np.ndarray, shortest_pause: int, longest: float) -> np.ndarray:
    """Runs (N, 2) joined over the pauses that do not cut; in frames."""
    if not len(runs):
        return runs
    pauses = runs[1:, 0] - runs[:-1, 1]
    edges = np.concatenate(([0], np.flatnonzero(pauses >= shortest_pause) + 1, [len(runs)])).tolist()
    waiting, found = list(pairwise(edges))[::-1], []
    while waiting:
        first, last = waiting.pop()  # the earliest of what waits
        inner = pauses[first : last - 1]
        too_long = runs[last - 1, 1] - runs[first, 0] > longest
        if too_long and inner.max(initial=0) >= LEAST_PAUSE / FRAME:
            cut = first + int(inner.argmax()) + 1
            waiting += [(cut, last), (first, cut)]
        else:
            found.append((runs[first, 0], runs[last - 1, 1]))
    return np.array(found)


def windows(segment: Segment, window: float, overlap: float) -> Iterator[Segment]:
    """A segment as windows of `window` seconds, each `overlap` seconds into the one before; the last ones share."""
    count = max(1, int(np.ceil((segment.end - segment.start - overlap) / (window - overlap) - 1e-6)))
    step = (segment.end - segment.start - overlap) / count
    for number in range(count):
        start = segment.start + number * step
        yield Segment(start, segment.end if number == count - 1 else start + step + overlap)


def _thresholds(levels: np.ndarray) -> tuple[float, float]:
    """What is louder in a block is speech; and what is louder next to speech belongs to it."""
    quiet, loud = np.percentile(levels, (10, 95))
    if loud - quiet < LEAST_CONTRAST:
        return SILENCE, SILENCE
    return max(SILENCE, quiet + THRESHOLD * (loud - quiet)), quiet + FADE * (loud - quiet)


def _runs(mask: np.ndarray) -> np.ndarray:
    """Starts and ends (N, 2) of the runs of True."""
    return np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))).reshape(-1, 2)


def _every(size: int, length: int) -> list[int]:
    return list(range(size, length, size))
