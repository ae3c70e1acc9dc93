"""Identity of a plan: the values that decide its batches, as a dictionary and as a digest.

A position inside a pass is resumed only if the plan has the same digest. The dictionary states its
names itself: classes and fields of the code may be renamed, and yaml keys may get new homes,
without an effect on runs that are not finished.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.frames import FrameCount

VERSION = 1
"""Version of the dictionary. Raise it when the same values begin to mean other batches."""


def digest_of(identity: dict[str, Any]) -> str:
    """Hash an identity, whatever the order of its keys."""
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def frames_identity(count: FrameCount) -> dict[str, Any]:
    """State the values that decide how many frames a sample has."""
    return {
        "sample_rate": count.sample_rate,
        "window": count.window,
        "shift": count.shift,
        "snip_edges": count.snip_edges,
        "padding": count.padding,
        "fixed_samples": count.fixed_samples,
    }


def filters_identity(filters: FilterConf) -> dict[str, Any]:
    """State the values that decide which samples take part."""
    return {
        "max_length": filters.max_length,
        "min_length": filters.min_length,
        "token_max_length": filters.token_max_length,
        "token_min_length": filters.token_min_length,
        "min_output_input_ratio": filters.min_output_input_ratio,
        "max_output_input_ratio": filters.max_output_input_ratio,
        "min_duration": filters.min_duration,
        "max_duration": filters.max_duration,
        "min_tps": filters.min_tps,
        "max_tps": filters.max_tps,
        "min_tpt": filters.min_tpt,
        "max_tpt": filters.max_tpt,
        "min_tokens": filters.min_tokens,
        "max_tokens": filters.max_tokens,
        "token_equivalent_duration": filters.token_equivalent_duration,
        "measure_total_length": filters.measure_total_length,
    }
