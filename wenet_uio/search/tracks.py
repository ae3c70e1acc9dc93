"""Which channels of a recording are transcribed, and what they are called."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from wenet_uio.audio.decoders import AudioError, Channel
from wenet_uio.audio.lost_sound import SHORTEST, is_quiet, is_silent, sounds
from wenet_uio.audio.read import Source, audio_info
from wenet_uio.search.speech import FRAME, channel_levels

ChosenChannel = Channel | Literal["each"]
"""A number from 0, `mix` for the mean of all channels, or `each` for all of them one by one."""
STEREO = ("left", "right")


class Track(NamedTuple):
    """A channel of a recording that is transcribed."""

    channel: Channel
    name: str = ""
    """Stands before its text; empty if no other channel of the recording is transcribed."""


def parse_channel(text: str) -> ChosenChannel:
    """Read the channel that a user chose.

    Raises:
        ValueError: it is neither a number from 0 nor mix nor each.
    """
    if text == "mix":
        return "mix"
    if text == "each":
        return "each"
    if not text.isdecimal():
        raise ValueError(f"expected a number from 0, mix or each, found {text!r:.40}")
    return int(text)


def tracks_of(source: Source, chosen: ChosenChannel | None, usual: Channel) -> list[Track]:
    """Choose the channels of a recording.

    If nobody chose one, these are the usual channel, and each other channel that sounds while all
    channels before it are quiet. So a call with a speaker on each channel has two tracks, and the
    same sound on two channels, at any gain, one. A silent channel is no track, unless all are.

    Args:
        usual: the channel of the training.

    Raises:
        AudioError: the recording cannot be read, or does not have the channel.
    """
    if chosen is not None and chosen != "each":
        return [Track(chosen)]
    if chosen is None and usual == "mix":
        return [Track(usual)]

    channels = audio_info(source).channels
    if chosen == "each":
        numbers = list(range(channels))
    elif int(usual) >= channels:
        raise AudioError(
            f"channel {usual} (counted from 0) is that of the training, the audio has {channels} "
            "channel(s); choose another"
        )
    else:
        numbers = _different(source, int(usual)) if channels > 1 else [int(usual)]

    if len(numbers) == 1:
        return [Track(numbers[0])]
    return [Track(number, name_of(number, channels)) for number in numbers]


def lost_channels(levels: np.ndarray, channel: int) -> list[int]:
    """Return the channels that sound while one channel is quiet.

    Args:
        levels: (channels, frames) in dB of full scale, of `channel_levels`.
    """
    quiet = is_quiet(levels[channel])
    return [
        number
        for number in range(len(levels))
        if number != channel and _adds(quiet, levels[number])
    ]


def name_of(channel: int, channels: int) -> str:
    """Return the name of one of several channels."""
    return STEREO[channel] if channels == len(STEREO) else f"channel {channel}"


def _different(source: Source, usual: int) -> list[int]:
    """Return the channels with a sound of their own, in order; the usual one if all are silent."""
    levels = channel_levels(source)
    chosen = [] if is_silent(levels[usual]) else [usual]
    quiet = is_quiet(levels[usual])
    for number in range(len(levels)):
        if number != usual and _adds(quiet, levels[number]):
            chosen.append(number)
            quiet &= is_quiet(levels[number])

    return sorted(chosen) or [usual]


def _adds(quiet: np.ndarray, levels: np.ndarray) -> bool:
    """Tell whether a channel sounds long enough in the frames where others are quiet.

    Args:
        quiet: (frames,), whether the others are.
        levels: (frames,) of the channel.
    """
    return bool(FRAME * np.count_nonzero(quiet & sounds(levels)) >= SHORTEST)
