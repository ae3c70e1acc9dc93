"""Code of a user, as the yaml of a cell names it: a model family and an operator."""

from __future__ import annotations

from dataclasses import replace

import torch

from wenet_uio.dataset.types import Example
from wenet_uio.families.hybrid import HYBRID

OWN = replace(HYBRID, name="tests.support.ends.own_code:OWN")
"""A family of another package."""
RATE = 16000


class Speaks:
    """Speaks each character of a text as noise of 0.15 s."""

    def __call__(self, example: Example) -> Example:
        if example.to_speak is None:
            return example

        generator = torch.Generator().manual_seed(example.random)
        samples = int(0.15 * RATE) * len(example.to_speak.text)
        noise = 1000 * torch.randn(samples, generator=generator)
        return replace(example, waveform=noise, sample_rate=RATE)
