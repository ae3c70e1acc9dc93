"""White noise as a function of (seed, sample number): equal in a worker and on an accelerator, in
any batch.
"""

from __future__ import annotations

from functools import lru_cache

import torch

LEVELS = 1 << 16
"""Number of values of the noise: quantiles of the normal distribution, up to 4.3 standard
deviations."""


def white_noise(seeds: torch.Tensor, samples: int) -> torch.Tensor:
    """Normal noise of standard deviation 1, (B, samples) float32 on the device of `seeds` (B,)
    int64.

    SplitMix64 (Steele et al., OOPSLA 2014) of a counter gives 64-bit numbers; each number selects
    four samples.
    """
    counters = torch.arange(1, -(-samples // 4) + 1, device=seeds.device)
    numbers = seeds[:, None] + counters * _signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        # >> fills with the sign bit
        numbers ^= (numbers >> shift).bitwise_and_((1 << (64 - shift)) - 1)
        numbers *= _signed(factor)

    numbers ^= (numbers >> 31).bitwise_and_((1 << 33) - 1)
    level = numbers.view(torch.int16).flatten().to(torch.int32).add_(LEVELS // 2)
    return _quantiles(seeds.device).index_select(0, level).view(len(seeds), -1)[:, :samples]


def _signed(number: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit number above 2**63."""
    return number - (1 << 64)


@lru_cache(maxsize=4)
def _quantiles(device: torch.device) -> torch.Tensor:
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.special.ndtri(middles).float().to(device)
