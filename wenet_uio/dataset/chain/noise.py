"""Operators that add noise or a second utterance, and that change the level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

import numpy as np
import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.config.augmentation import GainConf, NoiseConf, OverlapConf, WhiteNoiseConf
from wenet_uio.dataset.chain.recordings import Excerpt, Recordings, repeated
from wenet_uio.dataset.types import Example, waveform_of

NoiseSource = Callable[[Example, Random], Excerpt]
"""Noise as long as the waveform of the example."""
EXPONENTS = {"white": 0, "pink": 1, "brown": 2}
"""The power per Hz of a colour is proportional to 1 / frequency ** exponent."""
TABLE = 1 << 20
"""Samples of the noise of each colour, of which utterances get excerpts: 65 seconds at 16 kHz, 4
MB."""
LOWEST = 1 / 800
"""Lowest frequency of this noise as a share of the sample rate: 20 Hz at 16 kHz. Lower ones would
have most power."""

BLOCK = 4096
"""Samples whose squares are added up in one product."""


@dataclass(frozen=True)
class AddNoise:
    """Add noise at a drawn ratio of signal to noise. Utterances and noises that are silent stay as
    they are.
    """

    conf: NoiseConf
    sources: tuple[NoiseSource, ...]
    """One is drawn for each utterance."""

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays. Add to `unreadable`."""
        random = Random(f"noise {example.random}")
        if random.random() >= self.conf.prob:
            return example

        ratio = random.uniform(*self.conf.snr)
        noise, unreadable = random.choice(self.sources)(example, random)
        if noise is not None:
            example = replace(example, waveform=mixed(waveform_of(example), noise, ratio))

        return (
            replace(example, unreadable=example.unreadable + unreadable) if unreadable else example
        )


@dataclass(frozen=True)
class RecordedNoise:
    """Noise of a list."""

    recordings: Recordings

    def __call__(self, example: Example, random: Random) -> Excerpt:
        """Return an excerpt of a drawn recording."""
        return self.recordings.excerpt(len(waveform_of(example)), random)


@dataclass(frozen=True)
class Babble:
    """Other utterances of the training data, all equally loud, added up."""

    recordings: Recordings
    talkers: tuple[int, int]
    """Lowest and highest number of utterances."""

    def __call__(self, example: Example, random: Random) -> Excerpt:
        """Return the sum; utterances that are shorter are repeated."""
        samples, unreadable = len(waveform_of(example)), ()
        babble: torch.Tensor | None = None
        for _ in range(random.randint(*self.talkers)):
            voice, not_read = self.recordings.excerpt(samples, random, other_than=example.key)
            unreadable += not_read
            loudness = 0.0 if voice is None else power(voice) ** 0.5
            if voice is not None and loudness:
                scale = INT16_SCALE / loudness
                babble = voice * scale if babble is None else babble.add_(voice, alpha=scale)

        return Excerpt(babble, unreadable)


@dataclass(frozen=True)
class ColouredNoise:
    """Random noise with a falling spectrum."""

    exponent: int

    def __call__(self, example: Example, random: Random) -> Excerpt:
        """Return an excerpt from a drawn place."""
        table = coloured_noise(self.exponent)
        return Excerpt(repeated(table, random.randrange(len(table)), len(waveform_of(example))), ())


@dataclass(frozen=True)
class WhiteNoise:
    """Add white noise of a drawn level, also to silence."""

    conf: WhiteNoiseConf

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays."""
        random = Random(f"white_noise {example.random}")
        if random.random() >= self.conf.prob:
            return example

        factor = INT16_SCALE * 10 ** (random.randint(*self.conf.level) / 20)
        waveform, table = waveform_of(example), coloured_noise(EXPONENTS["white"])
        noise = repeated(table, random.randrange(len(table)), len(waveform))
        return replace(example, waveform=torch.add(waveform, noise, alpha=factor))


@lru_cache(maxsize=len(EXPONENTS))
def coloured_noise(exponent: int) -> torch.Tensor:
    """Return (TABLE,) float32 noise, the same in every process; its end continues at its start."""
    spectrum = np.fft.rfft(np.random.default_rng(exponent).normal(size=TABLE))
    lowest = int(LOWEST * TABLE)
    # Half the exponent, because a spectrum holds amplitudes: power is their square.
    spectrum[lowest:] /= np.arange(lowest, len(spectrum)) ** (exponent / 2)
    spectrum[:lowest] = 0
    noise = np.fft.irfft(spectrum, TABLE)

    return torch.from_numpy((noise / noise.std()).astype(np.float32))


@dataclass(frozen=True)
class Overlap:
    """Add another utterance of the training data from a drawn place on, at a drawn ratio of the
    first to the second.
    """

    conf: OverlapConf
    recordings: Recordings

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length and the text stay. Add to `unreadable`."""
        random = Random(f"overlap {example.random}")
        if random.random() >= self.conf.prob:
            return example

        waveform, ratio = waveform_of(example), random.uniform(*self.conf.ratio)
        start = random.randrange(len(waveform))
        second, unreadable = self.recordings.part(
            len(waveform) - start, random, other_than=example.key
        )
        first_power, second_power = power(waveform), 0.0 if second is None else power(second)
        # Silence has no ratio to anything.
        if second is not None and first_power and second_power:
            waveform = waveform.to(torch.float32, copy=True)
            overlapped = waveform[start : start + len(second)]
            overlapped.add_(second, alpha=_factor(first_power, second_power, ratio))

        return replace(example, waveform=waveform, unreadable=example.unreadable + unreadable)


@dataclass(frozen=True)
class Gain:
    """Multiply the waveform by a drawn factor, and clip it at full scale."""

    conf: GainConf

    def __call__(self, example: Example) -> Example:
        """Change `waveform`; its length stays."""
        random = Random(f"gain {example.random}")
        if random.random() >= self.conf.prob:
            return example
        louder = waveform_of(example) * 10 ** (random.uniform(*self.conf.gain) / 20)
        return replace(example, waveform=louder.clamp_(-INT16_SCALE, INT16_SCALE - 1))


def mixed(waveform: torch.Tensor, other: torch.Tensor, ratio: float) -> torch.Tensor:
    """Return the sum of two waveforms of equal length, float32; the first has `ratio` dB more power
    than the second.

    The second has no effect if one of them is silent.
    """
    signal, noise = power(waveform), power(other)
    if not signal or not noise:
        return waveform
    return torch.add(waveform, other, alpha=_factor(signal, noise, ratio))


def _factor(signal: float, noise: float, ratio: float) -> float:
    """Return the factor of noise of power `noise`, with which a signal of power `signal` has
    `ratio` dB more power.
    """
    return (signal / noise) ** 0.5 * 10 ** (-ratio / 20)


def power(waveform: torch.Tensor) -> float:
    """Return the mean square: the same bits with any number of threads, because products of short
    blocks use one thread.
    """
    samples = waveform.numpy().astype(np.float32, copy=False)
    in_blocks = len(samples) // BLOCK * BLOCK
    blocks, remainder = samples[:in_blocks].reshape(-1, BLOCK), samples[in_blocks:]

    squares_of_blocks = blocks[:, None] @ blocks[:, :, None]  # (blocks, 1, 1)
    total = float(squares_of_blocks.sum(dtype=np.float64)) + float(remainder @ remainder)
    return total / len(samples)
