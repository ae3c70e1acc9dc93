"""Files of miniature corpora."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

Texts = dict[str, dict[str, str]]
"""part -> key -> text"""


def noise(
    path: Path, rate: int = 16000, seconds: float = 0.4, channels: int = 1, **format_: str
) -> None:
    """Write white noise; each channel has its own loudness, so that channels differ."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(0).normal(0, 0.05, (int(rate * seconds), channels))
    soundfile.write(path, samples * (1 + np.arange(channels)), rate, **format_)


def lines(path: Path, *rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
