"""Frames of Kaldi's features: their lengths and windows."""

from __future__ import annotations

import math

import torch

from wenet_uio.config.dataset import FbankConf

EPSILON = torch.finfo(torch.float32).eps
"""Kaldi raises energies to this floor before the logarithm."""


def window_and_shift(sample_rate: int, conf: FbankConf) -> tuple[int, int]:
    """Return samples of a frame, and samples between the starts of two frames."""
    return int(sample_rate * conf.frame_length * 0.001), int(sample_rate * conf.frame_shift * 0.001)


def fft_size_of(size: int) -> int:
    """Return the points of the Fourier transform of frames with `size` samples: a power of two."""
    return 1 << (size - 1).bit_length()


def window_of(kind: str, size: int) -> torch.Tensor:
    """Return a window (size,) float64, by the formulas of Kaldi."""
    phase = torch.arange(size, dtype=torch.float64) * (2 * math.pi / (size - 1))
    if kind == "rectangular":
        return torch.ones(size, dtype=torch.float64)
    if kind == "hamming":
        return 0.54 - 0.46 * phase.cos()
    if kind == "blackman":
        return 0.42 - 0.5 * phase.cos() + 0.08 * (2 * phase).cos()

    hann = 0.5 - 0.5 * phase.cos()
    return hann.pow(0.85) if kind == "povey" else hann
