"""CTC greedy search: the best label of every frame."""

from __future__ import annotations

import math

import torch

from wenet_uio.search.ctc_path import collapse
from wenet_uio.search.types import Hypothesis, NBest


def ctc_greedy_search(
    log_probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0
) -> list[NBest]:
    """Take the best label of every frame, merge repeats, remove blanks.

    Args:
        log_probs: (B, T, V) CTC log-probabilities.
        lengths: (B,) frames.

    Returns:
        Per utterance one hypothesis; its score is the log-probability of the best path.
    """
    scores, labels = log_probs.max(dim=-1)
    outside = torch.arange(scores.size(1), device=scores.device) >= lengths.unsqueeze(1)
    totals = scores.masked_fill(outside, 0.0).sum(dim=1).tolist()
    paths = collapse(labels, scores, lengths, blank)

    return [
        [Hypothesis(path.tokens, total, path.peaks, tuple(map(math.exp, path.scores)))]
        for path, total in zip(paths, totals, strict=True)
    ]
