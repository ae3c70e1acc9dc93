"""Operators that change features at random, in training only. Each draws from the sample's own seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from wenet_uio.config.dataset import SpecAugConf, SpecSubConf, SpecTrimConf
from wenet_uio.dataset.types import Example


@dataclass(frozen=True)
class SpecSub:
    """Overwrite stretches of time with earlier ones (U2++, arXiv:2106.05642)."""

    conf: SpecSubConf

    def __call__(self, example: Example) -> Example:
        random = Random(f"spec_sub {example.random}")
        feats = example.feats.clone()
        frames = len(feats)
        for _ in range(self.conf.num_t_sub):
            start = random.randrange(frames)
            end = min(frames, start + random.randint(1, self.conf.max_t))
            back = random.randint(0, start)
            feats[start:end] = example.feats[start - back : end - back]
        return replace(example, feats=feats)


@dataclass(frozen=True)
class SpecTrim:
    """Cut frames from the end, at most half of them."""

    conf: SpecTrimConf

    def __call__(self, example: Example) -> Example:
        cut = Random(f"spec_trim {example.random}").randint(1, self.conf.max_t)
        if cut >= len(example.feats) / 2:
            return example
        return replace(example, feats=example.feats[:-cut])


@dataclass(frozen=True)
class SpecAug:
    """Set stretches of time and bands of frequency to zero (SpecAugment, arXiv:1904.08779)."""

    conf: SpecAugConf

    def __call__(self, example: Example) -> Example:
        random = Random(f"spec_aug {example.random}")
        feats = example.feats.clone()
        frames, bins = feats.shape
        for _ in range(self.conf.num_t_mask):
            start = random.randrange(frames)
            feats[start : start + random.randint(1, self.conf.max_t)] = 0
        for _ in range(self.conf.num_f_mask):
            start = random.randrange(bins)
            feats[:, start : start + random.randint(1, self.conf.max_f)] = 0
        return replace(example, feats=feats)
