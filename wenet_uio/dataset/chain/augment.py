"""Operators that change features at random, in training only.

What each does to a sample is drawn from the sample's own seed as a few numbers; `__call__` does it to the features of
one example, `deferred.py` to those of a batch on the accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from wenet_uio.config.dataset import SpecAugConf, SpecSubConf, SpecTrimConf
from wenet_uio.dataset.types import Example


class Stretch(NamedTuple):
    """Frames or bins from `first` up to `end`, which may be beyond the last."""

    first: int
    end: int


class Copied(NamedTuple):
    """Frames from `first` up to `end` become those `back` frames earlier."""

    first: int
    end: int
    back: int


@dataclass(frozen=True)
class SpecSub:
    """Overwrite stretches of time with earlier ones (U2++, arXiv:2106.05642)."""

    conf: SpecSubConf

    def draw(self, seed: int, frames: int) -> list[Copied]:
        random = Random(f"spec_sub {seed}")
        copied = []
        for _ in range(self.conf.num_t_sub):
            start = random.randrange(frames)
            end = min(frames, start + random.randint(1, self.conf.max_t))
            copied.append(Copied(start, end, random.randint(0, start)))
        return copied

    def __call__(self, example: Example) -> Example:
        feats = example.feats.clone()
        for first, end, back in self.draw(example.random, len(feats)):
            feats[first:end] = example.feats[first - back : end - back]
        return replace(example, feats=feats)


@dataclass(frozen=True)
class SpecTrim:
    """Cut frames from the end, at most half of them."""

    conf: SpecTrimConf

    def draw(self, seed: int, frames: int) -> int:
        """How many frames go."""
        cut = Random(f"spec_trim {seed}").randint(1, self.conf.max_t)
        return 0 if cut >= frames / 2 else cut

    def __call__(self, example: Example) -> Example:
        frames = len(example.feats)
        return replace(example, feats=example.feats[: frames - self.draw(example.random, frames)])


@dataclass(frozen=True)
class SpecAug:
    """Set stretches of time and bands of frequency to zero (SpecAugment, arXiv:1904.08779)."""

    conf: SpecAugConf

    def draw(self, seed: int, frames: int, bins: int) -> tuple[list[Stretch], list[Stretch]]:
        """Masks of time, and of frequency."""
        random = Random(f"spec_aug {seed}")
        masks: list[list[Stretch]] = []
        for number, size, longest in (
            (self.conf.num_t_mask, frames, self.conf.max_t),
            (self.conf.num_f_mask, bins, self.conf.max_f),
        ):
            starts = ((random.randrange(size), random.randint(1, longest)) for _ in range(number))
            masks.append([Stretch(start, start + length) for start, length in starts])
        return masks[0], masks[1]

    def __call__(self, example: Example) -> Example:
        feats = example.feats.clone()
        times, bands = self.draw(example.random, *feats.shape)
        for first, end in times:
            feats[first:end] = 0
        for first, end in bands:
            feats[:, first:end] = 0
        return replace(example, feats=feats)
