"""Decode G.711, the encoding of telephone lines: 8 bits a sample at 8000 Hz (ITU-T G.711)."""

from __future__ import annotations

import numpy as np

RATE = 8000
"""Hz."""


def _mu_law_samples() -> np.ndarray:
    """Return the 16-bit samples (256,) of all codes of mu-law."""
    codes = ~np.arange(256) & 0xFF
    exponent, mantissa = codes >> 4 & 7, codes & 15
    size = ((2 * mantissa + 33 << exponent) - 33) * 4
    return np.where(codes & 0x80, -size, size).astype("<i2")


def _a_law_samples() -> np.ndarray:
    """Return the 16-bit samples (256,) of all codes of A-law."""
    codes = np.arange(256) ^ 0x55
    exponent, mantissa = codes >> 4 & 7, codes & 15
    # The lowest two segments have the same step.
    size = (2 * mantissa + 1 + 32 * (exponent > 0) << np.maximum(exponent - 1, 0)) * 8
    return np.where(codes & 0x80, size, -size).astype("<i2")


_SAMPLES = {"mu": _mu_law_samples(), "a": _a_law_samples()}


def decode_g711(data: bytes, law: str) -> bytes:
    """Return 16-bit samples, little-endian, of codes in mu-law (`mu`) or A-law (`a`)."""
    return _SAMPLES[law][np.frombuffer(data, np.uint8)].tobytes()
