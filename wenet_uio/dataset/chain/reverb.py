"""The operator that adds reverberation: convolution with the impulse response of a room."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

import numpy as np
import torch

from wenet_uio.config.augmentation import ReverbConf
from wenet_uio.dataset.chain.noise import power
from wenet_uio.dataset.chain.recordings import Recordings
from wenet_uio.dataset.types import Example, Skipped, waveform_of

MOST_SECONDS = 2.0
"""Seconds of a recorded impulse response that are used."""
SOUND = 343.0
"""Speed of sound in metres per second."""
SIZES = ((3.0, 10.0), (3.0, 8.0), (2.5, 4.0))
"""Smallest and largest length, width and height of a simulated room, in metres."""
TO_WALL = 0.3
"""Shortest distance of speaker and microphone to a wall, in metres."""
NEAREST = 0.1
"""Sound that comes from nearer than this distance in metres is as loud as from there."""
KEPT_ROOMS = 1000
"""Impulse responses of simulated rooms that a process keeps: at most 64 MB at 16 kHz and a second
each."""

ImpulseResponse = np.ndarray
"""(taps,) float32 that begins with the direct sound."""


@dataclass(frozen=True)
class Reverb:
    """Convolve the waveform with a drawn impulse response. The power of the utterance stays."""

    conf: ReverbConf
    rooms: RecordedRooms | SimulatedRooms

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays, and the direct sound stays in its place. Add to
        `unreadable`.
        """
        random = Random(f"reverb {example.random}")
        if random.random() >= self.conf.prob:
            return example

        waveform = waveform_of(example)
        response, unreadable = self.rooms(example.sample_rate, random)
        if response is not None:
            reverberant = torch.from_numpy(
                convolved(waveform.numpy().astype(np.float32, copy=False), response)
            )
            # The loudness stays: only a waveform of zeros has no power afterwards.
            former_power, new_power = power(waveform), power(reverberant)
            if new_power:
                waveform = reverberant.mul_((former_power / new_power) ** 0.5)

        return replace(example, waveform=waveform, unreadable=example.unreadable + unreadable)


@dataclass(frozen=True)
class RecordedRooms:
    """Impulse responses of a list. Their loudest sample counts as the direct sound; what is before
    it is cut.
    """

    recordings: Recordings

    def __call__(
        self, rate: int, random: Random
    ) -> tuple[ImpulseResponse | None, tuple[Skipped, ...]]:
        """Return a drawn response."""
        recording, unreadable = self.recordings.beginning(int(MOST_SECONDS * rate), random)
        if recording is None or not power(recording):
            return None, unreadable
        response = recording.numpy()
        return response[np.abs(response).argmax() :], unreadable


@dataclass(frozen=True)
class SimulatedRooms:
    """Impulse responses of shoebox rooms, drawn by their number."""

    number: int
    rt60: tuple[float, float]
    """Shortest and longest reverberation time, in seconds."""

    def __call__(
        self, rate: int, random: Random
    ) -> tuple[ImpulseResponse | None, tuple[Skipped, ...]]:
        """Return the response of a drawn room."""
        return simulated_room(random.randrange(self.number), self.rt60, rate), ()


@lru_cache(maxsize=KEPT_ROOMS)
def simulated_room(number: int, rt60: tuple[float, float], rate: int) -> ImpulseResponse:
    """Return the response of room `number`: its size, its reverberation time and both positions are
    drawn from `number`.
    """
    draw = np.random.default_rng(number)
    size = draw.uniform(*np.transpose(SIZES))
    speaker, microphone = draw.uniform(TO_WALL, size - TO_WALL, (2, 3))
    return shoebox(size, speaker, microphone, draw.uniform(*rt60), rate)


def shoebox(
    size: np.ndarray, speaker: np.ndarray, microphone: np.ndarray, rt60: float, rate: int
) -> ImpulseResponse:
    """Compute the response of a box with six equal walls by the image method.

    Allen and Berkley, JASA 65, 1979; walls by Eyring's formula.

    A reflection changes the sign, so that late reflections do not add up to a rumble (Lehmann and
    Johansson, JASA 124, 2008).

    Args:
        size: (3,) metres.
        speaker: (3,) metres from one corner.
        microphone: (3,) metres from the same corner.
        rt60: reverberation time, and length of the response, in seconds.
        rate: Hz.
    """
    volume, surface = size.prod(), 2 * (size * np.roll(size, 1)).sum()
    reflected = -np.exp(-0.161 * volume / (2 * surface * rt60))  # amplitude that a wall reflects

    # The images of the speaker are a grid (x, y, z): the squares of their distances from the
    # microphone, and the walls that their sound met.
    squared_distances, bounces = np.zeros((1, 1, 1)), np.zeros((1, 1, 1), dtype=np.int64)
    for axis in range(3):
        most = math.ceil(SOUND * rt60 / (2 * size[axis])) + 1
        copies = np.arange(-most, most + 1)
        mirrored = np.array([[0], [1]])
        # (2, copies) distances along this axis
        distances = (1 - 2 * mirrored) * speaker[axis] + 2 * copies * size[axis] - microphone[axis]
        shape = np.roll((distances.size, 1, 1), axis)
        squared_distances = squared_distances + (distances**2).reshape(shape)
        bounces = bounces + (np.abs(copies - mirrored) + np.abs(copies)).reshape(shape)

    # (images,) those whose sound arrives within the reverberation time
    direct = float(np.linalg.norm(speaker - microphone))
    is_audible = squared_distances < (direct + SOUND * rt60) ** 2
    distance = np.sqrt(squared_distances[is_audible])
    delay = (distance - direct) * rate / SOUND  # samples behind the direct sound
    amplitudes = reflected ** np.arange(bounces.max() + 1)  # by the number of walls
    loudness = amplitudes[bounces[is_audible]] / np.maximum(distance, NEAREST)

    # A delay between two samples is shared by both.
    sample = delay.astype(np.int64)
    share_of_next = delay - sample
    response = np.bincount(sample, loudness * (1 - share_of_next), int(rt60 * rate) + 2)
    response = response + np.bincount(sample + 1, loudness * share_of_next, len(response))
    return response.astype(np.float32)


def convolved(waveform: np.ndarray, response: ImpulseResponse) -> np.ndarray:
    """Return the first samples of the convolution, as many as `waveform` has; by blocks in the
    frequency domain.
    """
    size = 1 << (2 * len(response)).bit_length()
    step = size - len(response) + 1
    blocks = np.zeros((-(-len(waveform) // step), step), np.float32)
    blocks.ravel()[: len(waveform)] = waveform
    blocks_out = np.fft.irfft(np.fft.rfft(blocks, size) * np.fft.rfft(response, size), size)
    blocks_out[1:, : size - step] += blocks_out[
        :-1, step:
    ]  # the tail of a block lies in the next one

    return blocks_out[:, :step].ravel()[: len(waveform)].astype(np.float32)
