"""Find sound of a recording that training does not read, because it is on another channel."""

from __future__ import annotations

import numpy as np

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.dataset.types import AudioUtterance

FRAME = 0.02
"""Seconds of which a level is measured."""
SOUND = 20.0
"""A channel sounds in the frames that are at most this many dB below its loudest frame."""
QUIET = 30.0
"""The read channel is quiet in the frames that are this many dB below its loudest frame. The same
sound on two channels, at any gain, is never loud on one and quiet on the other."""
SILENT = -60.0
"""dB of full scale; a frame below is quiet on any channel."""
SHORTEST = 0.3
"""Seconds; less sound is a click."""


def other_sound(utterance: AudioUtterance, channel: int | str) -> str | None:
    """Say which channels sound while the read channel is quiet; None if no channel does.

    Args:
        channel: number of the read channel; `mix` reads all.

    Raises:
        AudioError: the audio cannot be read.
    """
    if channel == "mix":
        return None
    info = audio_info(utterance.audio)
    if info.is_features or info.channels < 2:
        return None

    read_levels = _levels(utterance, int(channel))
    lost = []
    for number in range(info.channels):
        seconds = FRAME * lost_frames(read_levels, _levels(utterance, number))
        if number != channel and seconds >= SHORTEST:
            lost.append(f"channel {number} sounds for {seconds:.1f} s in which it is quiet")

    return f"channel {channel} is read; {', '.join(lost)}" if lost else None


def lost_frames(read_levels: np.ndarray, levels: np.ndarray) -> int:
    """Count the frames in which another channel sounds while the read one is quiet.

    Args:
        read_levels, levels: (frames,) of both channels, in dB of full scale.
    """
    is_quiet = read_levels < max(read_levels.max(initial=SILENT) - QUIET, SILENT)
    sounds = levels > max(levels.max(initial=SILENT) - SOUND, SILENT)
    return int(np.count_nonzero(is_quiet & sounds))


def _levels(utterance: AudioUtterance, channel: int) -> np.ndarray:
    """Return the level of each frame of a channel, in dB of full scale."""
    waveform, rate = read_audio(utterance.audio, utterance.start, utterance.end, channel)
    length = max(1, round(FRAME * rate))
    frames = waveform[: len(waveform) // length * length].reshape(-1, length) / INT16_SCALE
    power = np.mean(np.square(frames, dtype=np.float64), axis=1)
    return 10 * np.log10(np.maximum(power, 1e-12))
