"""White noise as a function of (seed, sample number): equal in a worker and on an accelerator, in
any batch, by compiled functions (fbank.cpp) and by torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import torch

from wenet_uio.dataset.chain.compiled import compiled, int16_or_float32

LEVELS = 1 << 16
"""Number of values of the noise: quantiles of the normal distribution, up to 4.3 standard
deviations."""


GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
"""Step of the counters, as int64."""
CHUNK = 1 << 16
"""Numbers that are mixed together on a CPU: 0.5 MB."""


def white_noise(seeds: torch.Tensor, samples: int) -> torch.Tensor:
    """Draw normal noise of standard deviation 1, (B, samples) float32 on the device of `seeds` (B,)
    int64.

    SplitMix64 (Steele et al., OOPSLA 2014) of a counter gives 64-bit numbers; each number selects
    four samples.
    """
    counters = torch.arange(1, -(-samples // 4) + 1, device=seeds.device)
    noise = _noise_of((seeds[:, None] + counters * GOLDEN).flatten())
    return noise.view(len(seeds), -1)[:, :samples]


def dithered(
    waveforms: Sequence[torch.Tensor], seeds: Sequence[int], deviation: float
) -> list[torch.Tensor]:
    """Return each waveform (samples,) plus `white_noise` of its seed times a deviation, float32 on
    the CPU.
    """
    functions = compiled().functions
    if functions is None:
        noises = white_noises(seeds, [*map(len, waveforms)])
        return [
            torch.add(waveform, noise, alpha=deviation)
            for waveform, noise in zip(waveforms, noises, strict=True)
        ]

    quantiles = _quantiles(torch.device("cpu"))
    sums: list[torch.Tensor] = []
    for waveform, seed in zip(waveforms, seeds, strict=True):
        waveform = int16_or_float32(waveform)
        sums.append(torch.empty(len(waveform)))
        functions.add_noise(
            ctypes.c_void_p(waveform.data_ptr()),
            ctypes.c_int(waveform.dtype == torch.int16),
            ctypes.c_int64(len(waveform)),
            ctypes.c_uint64(seed),
            ctypes.c_float(deviation),
            ctypes.c_void_p(quantiles.data_ptr()),
            ctypes.c_void_p(sums[-1].data_ptr()),
        )

    return sums


def white_noises(seeds: Sequence[int], samples: Sequence[int]) -> list[torch.Tensor]:
    """Return `white_noise` of each seed, with a number of samples of its own, on the CPU."""
    counts = [-(-number // 4) for number in samples]
    steps = torch.arange(1, max(counts, default=0) + 1) * GOLDEN
    numbers = torch.cat([steps[:count] + seed for seed, count in zip(seeds, counts, strict=True)])
    noise = torch.cat([_noise_of(chunk) for chunk in numbers.split(CHUNK)])

    rows = noise.split([4 * count for count in counts])
    return [row[:number] for row, number in zip(rows, samples, strict=True)]


def _noise_of(numbers: torch.Tensor) -> torch.Tensor:
    """Mix seeds plus counters (n,) in place, and return the noise (4 * n,) that they select."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        # >> fills with the sign bit
        numbers ^= (numbers >> shift).bitwise_and_((1 << (64 - shift)) - 1)
        numbers *= _signed(factor)

    numbers ^= (numbers >> 31).bitwise_and_((1 << 33) - 1)
    level = numbers.view(torch.int16).flatten().to(torch.int32).add_(LEVELS // 2)
    return _quantiles(numbers.device).index_select(0, level)


def _signed(number: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit number above 2**63."""
    return number - (1 << 64)


@lru_cache(maxsize=4)
def _quantiles(device: torch.device) -> torch.Tensor:
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.special.ndtri(middles).float().to(device)
