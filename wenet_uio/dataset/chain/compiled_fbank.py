"""Log mel energies by the compiled function of fbank.cpp: its tables, and the call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import torch

from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.compiled import compiled, int16_or_float32
from wenet_uio.dataset.chain.mel import (
    EPSILON,
    fft_size_of,
    mel_matrix,
    window_and_shift,
    window_of,
)

LEAST_FFT = 32
"""Points of the smallest Fourier transform that fbank.cpp computes."""


class _Plan(ctypes.Structure):
    """`Plan` of fbank.cpp, which describes the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "shift", "bins", "points")),
        *((name, ctypes.c_int64) for name in ("eights", "fours")),
        *((name, ctypes.c_float) for name in ("emphasis", "mean_share", "floor")),
        *((name, ctypes.c_void_p) for name in ("window", "twiddles", "quads", "unpacking")),
        *((name, ctypes.c_void_p) for name in ("counts", "places", "weights")),
    )


@dataclass(frozen=True)
class _Planned:
    """A plan, and the tables that it points to."""

    plan: _Plan
    tables: tuple[np.ndarray, ...]


def can_compute(sample_rate: int, conf: FbankConf) -> bool:
    """Tell whether there is a compiled function that computes these features."""
    size, _ = window_and_shift(sample_rate, conf)
    return fft_size_of(size) >= LEAST_FFT and compiled().functions is not None


def log_mel_energies(
    waveforms: Sequence[torch.Tensor], frames: Sequence[int], sample_rate: int, conf: FbankConf
) -> list[torch.Tensor]:
    """Compute the energies (frames, mel bins) of each waveform, which has at least so many frames.

    Raises:
        MemoryError: there is no memory for the intermediate results.
    """
    planned = _plan_tables(sample_rate, conf)  # pyright: ignore[reportArgumentType] - frozen, so hashable
    waveforms = [int16_or_float32(waveform) for waveform in waveforms]
    energies = torch.empty(sum(frames), conf.num_mel_bins)
    features = [energies[first:last] for first, last in pairwise([0, *accumulate(frames)])]

    functions = compiled().functions
    assert functions is not None, "can_compute was asked before"
    failed = functions.log_mel_energies(
        ctypes.byref(planned.plan),
        ctypes.c_int64(len(waveforms)),
        _array(ctypes.c_void_p, [waveform.data_ptr() for waveform in waveforms]),
        _array(ctypes.c_uint8, [waveform.dtype == torch.int16 for waveform in waveforms]),
        _array(ctypes.c_int64, [len(waveform) for waveform in waveforms]),
        _array(ctypes.c_int64, frames),
        _array(ctypes.c_void_p, [rows.data_ptr() for rows in features]),
    )
    if failed:
        raise MemoryError("no memory for the intermediate results of fbank features")

    return features


def _array(kind: type[ctypes._SimpleCData], values: Sequence[int]) -> ctypes.Array:
    return (kind * len(values))(*values)


@lru_cache(maxsize=16)
def _plan_tables(sample_rate: int, conf: FbankConf) -> _Planned:
    """Compute the tables in float64; they are float32."""
    size, shift = window_and_shift(sample_rate, conf)
    fft_size = fft_size_of(size)
    points = fft_size // 2
    # The passes before the last one, of radix 4: as many as possible of radix 8, the others of 4.
    doublings = (points // 4).bit_length() - 1
    fours = -doublings % 3
    eights = (doublings - 2 * fours) // 3
    radices = [8] * eights + [4] * fours
    quads = _quads(points, radices)

    # What makes outputs of the real transform from two complex ones.
    outputs = np.arange(points // 8 + 1)[:, None] + points // 4 * np.arange(4)
    unpacking = _cosines_and_sines(outputs / (2 * points))

    # The powers are four times too large.
    mel = mel_matrix(sample_rate, fft_size, conf).numpy() / 4
    tables = (
        window_of(conf.window_type, size).numpy().astype(np.float32),
        _twiddles(points, radices),
        quads,
        unpacking,
        *_mel_tables(mel, quads),
    )
    emphasis = conf.preemphasis_coefficient
    plan = _Plan(
        *(size, shift, conf.num_mel_bins, points, eights, fours, emphasis),
        *((1 - emphasis) * conf.remove_dc_offset, EPSILON),
        *(table.ctypes.data for table in tables),
    )
    return _Planned(plan, tables)


def _twiddles(points: int, radices: Sequence[int]) -> np.ndarray:
    """Return the cosines and sines that each pass multiplies its outputs 1, 2, … with."""
    tables: list[np.ndarray] = []
    block = points
    for radix in radices:
        turns = np.outer(np.arange(block // radix), np.arange(1, radix)) / block
        tables.append(_cosines_and_sines(-turns))
        block //= radix

    return np.concatenate([table.ravel() for table in tables])


def _cosines_and_sines(turns: np.ndarray) -> np.ndarray:
    angles = 2 * np.pi * turns
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def _quads(points: int, radices: Sequence[int]) -> np.ndarray:
    """Return (points / 4,): where the last pass finds the first of the four points of output k.

    A pass puts outputs with the same remainder k % radix into a block of their own.
    """
    outputs = np.arange(points // 4)
    places = np.zeros_like(outputs)
    block = points
    for radix in radices:
        block //= radix
        places += outputs % radix * block
        outputs //= radix

    return places.astype(np.int32)


def _mel_tables(mel: np.ndarray, quads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, places and weights of the powers between the centres of adjacent bins.

    The last bin in which a power has a weight is the upper one, in which the weights rise.
    """
    # (bins + 2,) columns: none is below the first bin, and none above the last one.
    padded = np.pad(mel, ((0, 0), (1, 1)))
    num_powers, num_bins = mel.shape
    last_bin = num_bins - 1 - (mel[:, ::-1] != 0).argmax(1)
    upper = np.where(mel.any(1), last_bin, -1)

    powers: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for upper_bin in range(num_bins + 1):
        of_bin = (upper == upper_bin).nonzero()[0]
        if not len(of_bin):  # the first power, without weight here, so that nan stays nan
            of_bin = np.zeros(1, np.intp)
        powers.append(of_bin)
        weights.append(padded[of_bin][:, [upper_bin + 1, upper_bin]])

    places = 2 * quads[np.arange(num_powers) % len(quads)] + np.arange(num_powers) // len(quads)
    places[-1] = 2 * quads[0] + 4  # the power at half the sample rate
    return (
        np.array([len(of_bin) for of_bin in powers], np.int32),
        places[np.concatenate(powers)].astype(np.int32),
        np.concatenate(weights).astype(np.float32, order="C"),
    )
