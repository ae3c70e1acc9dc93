"""Filters on tokens, shared by the plan, the chain and the checks."""

from __future__ import annotations

import numpy as np

from wenet_uio.config.dataset import FilterConf

FILTER_FRAMES_PER_SECOND = 100
"""filter_conf counts frames of 10 ms, whatever the features' frame shift."""


def token_count_filters(conf: FilterConf, tokens: np.ndarray | int) -> list[tuple[str, np.ndarray]]:
    """Reasons to leave a sample out for the number of its tokens, with whether each holds."""
    tokens = np.asarray(tokens)
    return [
        ("token_max_length", tokens > conf.token_max_length),
        ("token_min_length", tokens < conf.token_min_length),
    ]


def token_rate_filters(
    conf: FilterConf, tokens: np.ndarray | int, frames: np.ndarray | float
) -> list[tuple[str, np.ndarray]]:
    """Reasons to leave a sample out for its tokens per time, with whether each holds.

    `frames` are of 10 ms, of the audio as stored.
    """
    ratio = np.asarray(tokens) / np.maximum(frames, 1e-6)
    filters = [
        ("min_output_input_ratio", ratio < conf.min_output_input_ratio),
        ("max_output_input_ratio", ratio > conf.max_output_input_ratio),
        ("min_tps", ratio * FILTER_FRAMES_PER_SECOND < conf.min_tps),
    ]
    if conf.max_tps is not None:
        filters.append(("max_tps", ratio * FILTER_FRAMES_PER_SECOND > conf.max_tps))
    return filters
