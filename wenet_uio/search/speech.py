"""Cut long recordings: at their pauses, and segments that are still too long into overlapping windows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wenet_uio.audio.read import INT16_SCALE, Channel, audio_info, read_audio

FRAME = 0.01
"""Seconds of a level measurement."""
BLOCK = 30.0
"""Seconds that are read at once, and that share one threshold between speech and pauses."""
LEAST_CONTRAST = 10.0
"""dB between the loud and the quiet level of a block; with less contrast the block is all speech or all silence."""
SILENCE = -60.0
"""dB of full scale; quieter frames are never speech."""
THRESHOLD = 0.35
"""Position of the speech threshold between the quiet (0) and the loud (1) level of a block."""
FADE = 0.05
"""Position of the threshold for soft beginnings and ends of speech, on the same scale."""
LONGEST_FADE = 0.15
"""Longest soft beginning or end, in seconds."""
CLICK = 0.05
"""Seconds; shorter loud sounds are not speech."""
LEAST_PAUSE = 0.1
"""Shortest pause, in seconds, that may cut a segment that is too long; shorter pauses are within words."""
MARGIN = 0.01
"""Seconds that are added to both ends of the speech."""


class Segment(NamedTuple):
    """A stretch of a recording, in seconds."""

    start: float
    end: float


def measure_levels(source: str, channel: Channel = 0) -> np.ndarray:
    """Level of each FRAME of a file in dB of full scale; memory is one block of audio and 4 bytes a frame.

    Raises:
        AudioError: the file cannot be read.
    """
    info = audio_info(source)
    seconds = info.num_samples / info.sample_rate
    levels = []
    for number in range(max(1, -(-info.num_samples // round(BLOCK * info.sample_rate)))):
        waveform, _ = read_audio(source, number * BLOCK, min(seconds, (number + 1) * BLOCK), channel)
        # At 22050 Hz frames are 220 or 221 samples long; frames of equal length would drift from the clock.
        frames = np.ceil(len(waveform) / (FRAME * info.sample_rate) - 1e-6)
        starts = (np.arange(frames) * FRAME * info.sample_rate).astype(np.int64)
        energy = np.add.reduceat(np.square(waveform / np.float32(INT16_SCALE)), starts)
        energy /= np.diff(starts, append=len(waveform))
        levels.append(10.0 * np.log10(energy + 1e-10).astype(np.float32))
    return np.concatenate(levels)


def speech_segments(levels: np.ndarray, shortest_pause: float, longest: float = np.inf) -> list[Segment]:
    """Speech between pauses of at least `shortest_pause` seconds, with soft beginnings and ends and a margin.

    A segment longer than `longest` seconds is cut at its longest pause, repeatedly, if that pause has LEAST_PAUSE.
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
    """Starts and ends (N,) in seconds of `speech` (N, 2; frames), widened by the audible frames and the margin."""
    place = np.searchsorted(audible[:, 0], speech - [0, 1], side="right") - 1  # loud frames are audible as well
    fades = np.stack((speech[:, 0] - audible[place[:, 0], 0], audible[place[:, 1], 1] - speech[:, 1]), axis=1)
    wider = np.minimum(fades * FRAME, LONGEST_FADE) + MARGIN
    room = np.full(len(speech) + 1, np.inf)  # half of each pause; no limit at both ends
    room[1:-1] = (speech[1:, 0] - speech[:-1, 1]) * FRAME / 2
    starts = speech[:, 0] * FRAME - np.minimum(wider[:, 0], room[:-1])
    return starts, speech[:, 1] * FRAME + np.minimum(wider[:, 1], room[1:])


def _between_pauses(runs: np.ndarray, shortest_pause: int, longest: float) -> np.ndarray:
    """Join runs (N, 2) over the pauses at which the recording is not cut; all in frames."""
    if not len(runs):
        return runs
    pauses = runs[1:, 0] - runs[:-1, 1]
    edges = np.concatenate(([0], np.flatnonzero(pauses >= shortest_pause) + 1, [len(runs)])).tolist()
    waiting, found = list(pairwise(edges))[::-1], []
    while waiting:
        first, last = waiting.pop()  # the earliest
        inner = pauses[first : last - 1]
        too_long = runs[last - 1, 1] - runs[first, 0] > longest
        if too_long and inner.max(initial=0) >= LEAST_PAUSE / FRAME:
            cut = first + int(inner.argmax()) + 1
            waiting += [(cut, last), (first, cut)]
        else:
            found.append((runs[first, 0], runs[last - 1, 1]))
    return np.array(found)


def windows(segment: Segment, window: float, overlap: float) -> Iterator[Segment]:
    """Cut a segment into windows of equal length, at most `window` seconds, that overlap by `overlap` seconds."""
    count = max(1, int(np.ceil((segment.end - segment.start - overlap) / (window - overlap) - 1e-6)))
    step = (segment.end - segment.start - overlap) / count
    for number in range(count):
        start = segment.start + number * step
        yield Segment(start, segment.end if number == count - 1 else start + step + overlap)


def _thresholds(levels: np.ndarray) -> tuple[float, float]:
    """Two levels in dB: frames above the first are speech; frames above the second next to speech belong to it."""
    quiet, loud = np.percentile(levels, (10, 95))
    if loud - quiet < LEAST_CONTRAST:
        return SILENCE, SILENCE
    return max(SILENCE, quiet + THRESHOLD * (loud - quiet)), quiet + FADE * (loud - quiet)


def _runs(mask: np.ndarray) -> np.ndarray:
    """Starts and ends (N, 2) of the runs of True."""
    return np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))).reshape(-1, 2)


def _every(size: int, length: int) -> list[int]:
    return list(range(size, length, size))
