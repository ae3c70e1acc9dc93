"""What a tracker gets at a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Entry:
    """What a tracker gets at a step."""

    step: int
    scalars: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)
    """(height, width, 3) uint8."""
    texts: Mapping[str, str] = field(default_factory=dict)
    audio: Mapping[str, tuple[np.ndarray, int]] = field(default_factory=dict)
    """Samples (T,), float32, and their rate in Hz."""

    def names(self) -> set[str]:
        """Return the names of everything in it."""
        return {*self.scalars, *self.pictures, *self.texts, *self.audio}
