"""Find sound of a recording that training does not read, because it is on another channel."""

from __future__ import annotations

import numpy as np

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.audio.lost_sound import SHORTEST, is_quiet, sounds
from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.dataset.types import AudioUtterance

FRAME = 0.02
"""Seconds of which a level is measured."""


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

    levels = _levels(utterance)
    quiet = is_quiet(levels[int(channel)])
    lost = []
    for number, of_channel in enumerate(levels):
        seconds = FRAME * np.count_nonzero(quiet & sounds(of_channel))
        if number != channel and seconds >= SHORTEST:
            lost.append(f"channel {number} sounds for {seconds:.1f} s in which it is quiet")

    return f"channel {channel} is read; {', '.join(lost)}" if lost else None


def _levels(utterance: AudioUtterance) -> np.ndarray:
    """Return the level of each frame of each channel, (channels, frames), in dB of full scale."""
    waveform, rate = read_audio(utterance.audio, utterance.start, utterance.end, channel=None)
    length = max(1, round(FRAME * rate))
    num_frames, channels = len(waveform) // length, waveform.shape[1]
    frames = waveform[: num_frames * length].reshape(num_frames, length, channels) / INT16_SCALE
    power = np.mean(np.square(frames, dtype=np.float64), axis=1).T
    return 10 * np.log10(np.maximum(power, 1e-12))
