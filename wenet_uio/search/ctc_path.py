"""CTC paths: from a label for every frame to tokens with their frames and probabilities, and forced
alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch


class CtcPath(NamedTuple):
    """Tokens of one utterance on a CTC path; each token spans a run of frames."""

    tokens: tuple[int, ...]
    peaks: tuple[int, ...]
    """The frame of each run in which the token is most probable."""
    scores: tuple[float, ...]
    """Log-probability of each token at its peak."""
    starts: tuple[int, ...]
    """First frame of each run."""
    ends: tuple[int, ...]
    """One past the last frame of each run."""


_EMPTY = CtcPath((), (), (), (), ())


def collapse(
    labels: torch.Tensor, scores: torch.Tensor, lengths: torch.Tensor, blank: int
) -> list[CtcPath]:
    """Merge repeated labels and remove blanks.

    Args:
        labels: (B, T) label of each frame.
        scores: (B, T) log-probability of each label.
        lengths: (B,) frames.
    """
    batch, frames = labels.shape
    if frames == 0:
        return [_EMPTY] * batch
    place = torch.arange(frames, device=labels.device)
    starts = torch.ones_like(labels, dtype=torch.bool)
    starts[:, 1:] = labels[:, 1:] != labels[:, :-1]
    counted = ((labels != blank) & (place < lengths.unsqueeze(1))).flatten()
    run = starts.flatten().cumsum(0) - 1  # every row starts a run, so runs never cross utterances
    runs = batch * frames
    scores = scores.flatten().masked_fill(~counted, -torch.inf)
    highest = scores.new_full((runs,), -torch.inf).scatter_reduce(0, run, scores, "amax")
    at_peak = torch.where(counted & (scores == highest[run]), place.repeat(batch), frames)
    peak = place.new_full((runs,), frames).scatter_reduce(0, run, at_peak, "amin")
    length = place.new_zeros(runs).scatter_add(0, run, counted.long())
    first = starts.flatten() & counted
    run, start = run[first], place.repeat(batch)[first]
    per_row = first.view(batch, frames).sum(dim=1).tolist()
    columns = (labels.flatten()[first], peak[run], highest[run], start, start + length[run])
    rows = zip(*(column.cpu().split(per_row) for column in columns), strict=True)
    return [CtcPath(*(tuple(column.tolist()) for column in row)) for row in rows]


def align_tokens(
    log_probs: torch.Tensor, tokens: Sequence[int], blank: int
) -> tuple[CtcPath, float] | None:
    """Forced alignment: the best CTC path through `tokens`, and its log-probability.

    Args:
        log_probs: (T, V) of one utterance.

    Returns:
        None if no CTC path exists: `tokens` has a blank, or there are too few frames.
    """
    repeats = sum(left == right for left, right in pairwise(tokens))
    if blank in tokens or len(tokens) + repeats > log_probs.size(0):
        return None
    if not tokens:
        return _EMPTY, float(log_probs[:, blank].sum())
    from torchaudio.functional import forced_align  # slow import, needed for alignment only

    target = torch.tensor([list(tokens)], device=log_probs.device)
    labels, scores = forced_align(log_probs.unsqueeze(0).float(), target, blank=blank)
    length = torch.tensor([log_probs.size(0)], device=log_probs.device)
    return collapse(labels.long(), scores, length, blank)[0], float(scores.sum())
