"""Which channels of a recording are transcribed, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from wenet_uio.addons.listen.speech import FRAME, LEAST_CONTRAST, channel_levels, level_contrast
from wenet_uio.audio.decoders import AudioError, Channel
from wenet_uio.audio.lost_sound import SHORTEST, is_quiet, is_silent, sounds
from wenet_uio.audio.read import Source, audio_info

ChosenChannel = Channel | Literal["each"]
"""A number from 0, `mix` for the mean of all channels, or `each` for all of them one by one."""
STEREO = ("left", "right")
MOST_DIGITS = 9
"""Digits of the number of a channel."""


class ChannelError(AudioError):
    """The recording does not have the channel."""


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
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise ValueError(f"expected a number from 0, mix or each, found {text!r:.40}")
    return int(text)


class Tracks(NamedTuple):
    """What is transcribed of a recording."""

    chosen: tuple[Track, ...]
    lost: tuple[int, ...] = ()
    """Channels that sound while all that are transcribed are quiet."""


def choose_tracks(source: Source, chosen: ChosenChannel | None, usual: Channel) -> Tracks:
    """Choose the channels of a recording.

    If nobody chose one, these are the usual channel, and each other channel that sounds while all
    channels before it are quiet. So a call with a speaker on each channel has two tracks, and the
    same sound on two channels, at any gain, one. A silent channel, or another one with hum or hiss
    alone, is no track, unless all are.

    Args:
        usual: the channel of the training.

    Raises:
        AudioError: the recording cannot be read, or does not have the channel.
    """
    channel = usual if chosen is None else chosen
    if channel == "mix":
        return Tracks((Track("mix"),))

    channels = audio_info(source).channels
    if channel == "each":
        return Tracks(_name_tracks(range(channels), channels))
    if channel >= channels:
        why = f"requested, the audio has {channels} channel(s)"
        if chosen is None:
            why = f"is that of the training, the audio has {channels} channel(s); choose another"
        raise ChannelError(f"channel {channel} (counted from 0) {why}")
    if channels == 1:
        return Tracks((Track(channel),))

    levels = channel_levels(source)
    numbers = different_channels(levels, channel) if chosen is None else [channel]
    return Tracks(_name_tracks(numbers, channels), tuple(lost_channels(levels, numbers)))


def _name_tracks(numbers: Sequence[int], channels: int) -> tuple[Track, ...]:
    """Return tracks of some of the channels of a recording; only one needs no name."""
    if len(numbers) == 1:
        return (Track(numbers[0]),)
    return tuple(Track(number, channel_name(number, channels)) for number in numbers)


def lost_channels(levels: np.ndarray, used: Sequence[int]) -> list[int]:
    """Return the channels that sound while those that are used are quiet.

    Args:
        levels: (channels, frames) in dB of full scale, of `channel_levels`.
    """
    quiet = np.logical_and.reduce([is_quiet(levels[number]) for number in used])
    unused = (number for number in range(len(levels)) if number not in used)
    return [number for number in unused if _adds_sound(quiet, levels[number])]


def channel_name(channel: int, channels: int) -> str:
    """Return the name of one of several channels."""
    return STEREO[channel] if channels == len(STEREO) else f"channel {channel}"


def different_channels(levels: np.ndarray, usual: int) -> list[int]:
    """Return the channels with a voice of their own, in order; the usual one if there is none.

    Args:
        levels: (channels, frames) in dB of full scale, of `channel_levels`.
    """
    used = [] if is_silent(levels[usual]) else [usual]
    quiet = is_quiet(levels[usual])
    for number in range(len(levels)):
        has_voice = number != usual and level_contrast(levels[number]) >= LEAST_CONTRAST
        if has_voice and _adds_sound(quiet, levels[number]):
            used.append(number)
            quiet &= is_quiet(levels[number])

    return sorted(used) or [usual]


def _adds_sound(quiet: np.ndarray, levels: np.ndarray) -> bool:
    """Tell whether a channel sounds long enough in the frames where others are quiet.

    Args:
        quiet: (frames,), whether the others are.
        levels: (frames,) of the channel.
    """
    return bool(FRAME * np.count_nonzero(quiet & sounds(levels)) >= SHORTEST)
