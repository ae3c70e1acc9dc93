"""Find sound that is lost if only one channel of a recording is read."""

from __future__ import annotations

import numpy as np

SOUND = 20.0
"""A channel sounds in the frames that are at most this many dB below its loudest frame."""
QUIET = 30.0
"""The read channel is quiet in the frames that are this many dB below its loudest frame. The same
sound on two channels, at any gain, is never loud on one and quiet on the other."""
SILENT = -60.0
"""dB of full scale; a frame below is quiet on any channel."""
SHORTEST = 0.3
"""Seconds; less sound is a click."""


def sounds(levels: np.ndarray) -> np.ndarray:
    """Tell in which frames a channel sounds, (frames,).

    Args:
        levels: (frames,) in dB of full scale.
    """
    return levels > max(levels.max(initial=SILENT) - SOUND, SILENT)


def is_quiet(levels: np.ndarray) -> np.ndarray:
    """Tell in which frames a channel is quiet, (frames,); it may neither be quiet nor sound.

    Args:
        levels: (frames,) in dB of full scale.
    """
    return levels < max(levels.max(initial=SILENT) - QUIET, SILENT)


def is_silent(levels: np.ndarray) -> bool:
    """Tell whether a channel never sounds; `levels` are (frames,) in dB of full scale."""
    return bool(levels.max(initial=SILENT) <= SILENT)
