"""Windows of frames, the mel matrix, and its product with power spectra."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
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


BAND_STEP, WIDEST_BAND = 4, 12
"""Mel bins per matrix product on a CPU: a multiple of BAND_STEP. With 16 columns, OpenBLAS adds up
the rows of a block in different orders on processors with AVX2."""
BAND_WEIGHTS = 700
"""Weights that a band of several steps has at most: few zeros, and few products."""
FRAME_BLOCK = 24
"""OpenBLAS computes all rows of a product alike if their number is a multiple of the rows of its
kernels, 4, 8 or 12. In others, bits of a row depend on the number of rows."""
SMALL_PRODUCT = 100**3
"""Multiplications of a product up to which OpenBLAS uses its kernel for small products, which adds
up in another order, on processors with AVX-512. It needs a multiple of four columns, too."""


class MelBand(NamedTuple):
    """Adjacent mel bins. Multiplying the mel matrix in such bands skips most of its zeros."""

    spectrum: slice
    """Squared real and imaginary parts with a weight in any bin of the band."""
    bins: slice
    weights: np.ndarray
    """(parts, bins)."""


Mel = torch.Tensor | tuple[MelBand, ...]
"""Weights of squared real and imaginary parts: (parts, mel bins), or in bands on a CPU."""


def mel_energies(spectrum: torch.Tensor, mel: Mel, energies: torch.Tensor) -> None:
    """Square a spectrum (frames, 2 * fft bins) in place and write its mel energies to `energies`
    (frames, mel bins).

    The energies of a frame do not depend on the other frames if their number is a multiple of
    FRAME_BLOCK and at most `frames_per_product`.
    """
    if isinstance(mel, torch.Tensor):
        with exact_products(spectrum):
            torch.mm(spectrum.square_(), mel, out=energies)
        return

    # Products of few columns are faster in numpy than in torch.
    power, out = spectrum.square_().numpy(), energies.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # infinity and nan stay, as in torch
        for band in mel:
            np.matmul(power[:, band.spectrum], band.weights, out=out[:, band.bins])


@contextmanager
def exact_products(x: torch.Tensor) -> Iterator[None]:
    """Compute products of x without autocast and TF32, whose few bits are not enough for
    features.
    """
    if x.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):
            yield
        return

    allowed_tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed_tf32


def mel_matrix(sample_rate: int, fft_size: int, conf: FbankConf) -> torch.Tensor:
    """Return weights (fft_size // 2 + 1, num_mel_bins) float64 of triangles at equal distances on
    Kaldi's mel scale.

    Raises:
        ValueError: the band between low_freq and high_freq is empty or exceeds half the sample
            rate.
    """
    nyquist = sample_rate / 2
    high = conf.high_freq if conf.high_freq > 0 else nyquist + conf.high_freq
    if not 0 <= conf.low_freq < high <= nyquist:
        raise ValueError(
            f"low_freq {conf.low_freq} and high_freq {conf.high_freq} leave no band at "
            f"{sample_rate} Hz: "
            f"the band must lie between 0 and {nyquist:g} Hz"
        )

    edges = torch.linspace(
        _mel(conf.low_freq), _mel(high), conf.num_mel_bins + 2, dtype=torch.float64
    )
    lower, centre, upper = edges[:-2], edges[1:-1], edges[2:]
    mels = 1127.0 * torch.log1p(
        torch.arange(fft_size // 2 + 1, dtype=torch.float64)[:, None] * sample_rate / fft_size / 700
    )
    weights = torch.minimum(
        (mels - lower) / (centre - lower), (upper - mels) / (upper - centre)
    ).clamp_(min=0)
    weights[-1] = 0  # Kaldi ignores the bin at half the sample rate

    return weights


def mel_weights(matrix: torch.Tensor, device: torch.device) -> Mel:
    """Prepare mel weights (fft bins, mel bins) for `mel_energies` on a device."""
    # Each weight twice: for the squared real part of a Fourier bin, and for the imaginary part.
    weights = matrix.float().repeat_interleave(2, dim=0)
    if device.type != "cpu":  # one product with all zeros is faster there
        return weights.to(device)

    bands: list[MelBand] = []
    num_bins, end = weights.size(1), 0
    while end < num_bins:
        # The last band begins earlier if fewer bins than a step are left.
        bands.append(_widest_band(weights, max(0, min(end, num_bins - BAND_STEP))))
        end = bands[-1].bins.stop

    return tuple(bands)


def frames_per_product(mel: Mel) -> int:
    """Return how many frames `mel_energies` may get at once on a CPU: a multiple of FRAME_BLOCK."""
    weights = max(band.weights.size for band in mel if isinstance(band, MelBand))
    return max(1, SMALL_PRODUCT // weights // FRAME_BLOCK) * FRAME_BLOCK


def _widest_band(weights: torch.Tensor, first: int) -> MelBand:
    """Return the widest band from the mel bin `first` on that is small, or else one step."""
    num_bins = weights.size(1)
    ends = range(first + BAND_STEP, min(first + WIDEST_BAND, num_bins) + 1, BAND_STEP)
    bands = [_band(weights, first, end) for end in ends or [num_bins]]
    small = [band for band in bands if band.weights.size <= BAND_WEIGHTS]
    return small[-1] if small else bands[0]


def _band(weights: torch.Tensor, first: int, end: int) -> MelBand:
    """Return the band of the mel bins from `first` up to `end`, without zeros around it."""
    band_weights = weights[:, first:end]
    # A band without weights keeps one row, so that its energies are zeros and not absent.
    used_rows = band_weights.any(1).nonzero().flatten().tolist() or [0]
    rows = slice(used_rows[0], used_rows[-1] + 1)
    return MelBand(rows, slice(first, end), band_weights[rows].contiguous().numpy())


def _mel(hertz: float) -> float:
    return 1127.0 * math.log1p(hertz / 700.0)
