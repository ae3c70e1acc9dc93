"""Filters on tokens, shared by the plan, the chain and the checks."""

from __future__ import annotations

import numpy as np

from wenet_uio.config.filters import FilterConf

FILTER_FRAMES_PER_SECOND = 100
"""`filter_conf` counts frames of 10 ms; the frame shift of the features does not matter."""


def token_count_filters(
    conf: FilterConf, tokens: np.ndarray | int, text_only: np.ndarray | bool
) -> list[tuple[str, np.ndarray]]:
    """Return filters on the number of tokens: (reason, whether it leaves each sample out).

    Args:
        conf: the bounds.
        tokens: of each sample.
        text_only: whether each sample is a text without audio, a pair or a conversation, which
            `min_tokens` and `max_tokens` bound.
    """
    tokens, text_only = np.asarray(tokens), np.asarray(text_only)
    bounds = (
        ("max_tokens", "token_max_length", np.greater),
        ("min_tokens", "token_min_length", np.less),
    )
    filters = []
    for key_for_text, key_for_all, is_out in bounds:
        text_bound, bound = getattr(conf, key_for_text), getattr(conf, key_for_all)
        leaves_out = is_out(tokens, bound)
        if text_bound is None:
            filters.append((key_for_all, leaves_out))
        else:
            filters.append((key_for_text, is_out(tokens, text_bound) & text_only))
            filters.append((key_for_all, leaves_out & ~text_only))

    return filters


def bounds_audio_tokens(conf: FilterConf) -> bool:
    """Tell whether `min_tokens` or `max_tokens` bound utterances with audio."""
    has_bounds = conf.min_tokens is not None or conf.max_tokens is not None
    return has_bounds and conf.token_equivalent_duration is not None


def audio_token_filters(conf: FilterConf, tokens: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return filters on the length of utterances in tokens: (reason, whether it leaves each out)."""
    filters = []
    if conf.max_tokens is not None:
        filters.append(("max_tokens", tokens > conf.max_tokens))
    if conf.min_tokens is not None:
        filters.append(("min_tokens", tokens < conf.min_tokens))
    return filters


def token_rate_filters(
    conf: FilterConf, tokens: np.ndarray | int, frames: np.ndarray | float
) -> list[tuple[str, np.ndarray]]:
    """Return filters on tokens per unit of time: (reason, whether it leaves each sample out).

    `frames` are frames of 10 ms of the stored audio, before speed perturbation.
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


def token_ratio_filters(
    conf: FilterConf, tokens: int, source_tokens: int
) -> list[tuple[str, np.ndarray]]:
    """Return filters on tokens of the second text of a pair per token of the first: (reason,
    whether it applies).
    """
    ratio = np.asarray(tokens / max(source_tokens, 1))
    filters = [("min_tpt", ratio < conf.min_tpt)]
    if conf.max_tpt is not None:
        filters.append(("max_tpt", ratio > conf.max_tpt))
    return filters
