"""Put quiet around recordings while training.

conf/train_u2++_conformer.yaml names this operator. The recordings of the corpus are cut close to the
words, but whoever speaks into a microphone is quiet before and after. A model that never heard quiet
finds words in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.dataset.types import Example, waveform_of


@dataclass(frozen=True)
class Quiet:
    """Adds faint noise before, behind and under a recording, drawn for each utterance and epoch."""

    prob: float = 0.7
    """Share of the utterances that get quiet."""
    longest: float = 0.8
    """Most seconds of it on each side."""
    level: tuple[float, float] = (-75.0, -45.0)
    """Lowest and highest level of the noise, in dB of full scale."""

    def __call__(self, example: Example) -> Example:
        """Return a longer waveform."""
        rng = random.Random(f"quiet {example.random}")
        if rng.random() >= self.prob:
            return example

        before, behind = (
            round(rng.uniform(0, self.longest) * example.sample_rate) for _ in range(2)
        )
        spoken = torch.nn.functional.pad(waveform_of(example), (before, behind))
        generator = torch.Generator().manual_seed(rng.getrandbits(62))
        noise = torch.randn(len(spoken), generator=generator)
        scale = INT16_SCALE * 10 ** (rng.uniform(*self.level) / 20)
        return replace(example, waveform=spoken + scale * noise)
