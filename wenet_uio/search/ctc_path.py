"""CTC paths: tokens with their frames from a label for every frame; greedy search and forced alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from wenet_uio.search.types import Hypothesis, NBest


class CtcPath(NamedTuple):
    """Tokens of one utterance on a CTC path; each token spans a run of frames."""

    tokens: tuple[int, ...]
    peaks: tuple[int, ...]
    """Frame of each run in which the token is most probable."""
    scores: tuple[float, ...]
    """Log-probability of each token at its peak."""
    starts: tuple[int, ...]
    """First frame of each run."""
    ends: tuple[int, ...]
    """One past the last frame of each run."""


_EMPTY = CtcPath((), (), (), (), ())


def collapse_labels(
    labels: torch.Tensor, scores: torch.Tensor, lengths: torch.Tensor, blank: int
) -> list[CtcPath]:
    """Merge repeated labels and remove blanks: the tokens of each utterance, with their frames.

    Args:
        labels: (B, T) label of each frame.
        scores: (B, T) log-probability of each label.
        lengths: (B,) frames.
    """
    batch, frames = labels.shape
    if frames == 0:
        return [_EMPTY] * batch

    # Number the runs of equal labels. Every row starts a run, so runs never cross utterances.
    frame = torch.arange(frames, device=labels.device)
    starts = torch.ones_like(labels, dtype=torch.bool)
    starts[:, 1:] = labels[:, 1:] != labels[:, :-1]
    run = starts.flatten().cumsum(0) - 1
    most_runs = batch * frames

    # Score, first best frame and length of each run; blanks and padding do not count.
    counted = ((labels != blank) & (frame < lengths.unsqueeze(1))).flatten()
    scores = scores.flatten().masked_fill(~counted, -torch.inf)
    highest = scores.new_full((most_runs,), -torch.inf).scatter_reduce(0, run, scores, "amax")
    at_peak = torch.where(counted & (scores == highest[run]), frame.repeat(batch), frames)
    peak = frame.new_full((most_runs,), frames).scatter_reduce(0, run, at_peak, "amin")
    length = frame.new_zeros(most_runs).scatter_add(0, run, counted.long())

    # Keep the runs that are tokens: (tokens of all utterances,) each
    is_token_start = starts.flatten() & counted
    tokens = labels.flatten()[is_token_start].tolist()
    run, start = run[is_token_start], frame.repeat(batch)[is_token_start]
    peaks, peak_scores = peak[run].tolist(), highest[run].tolist()
    first_frames, end_frames = start.tolist(), (start + length[run]).tolist()

    paths: list[CtcPath] = []
    first = 0
    for count in is_token_start.view(batch, frames).sum(dim=1).tolist():
        own = slice(first, first + count)
        paths.append(
            CtcPath(
                tuple(tokens[own]),
                tuple(peaks[own]),
                tuple(peak_scores[own]),
                tuple(first_frames[own]),
                tuple(end_frames[own]),
            )
        )
        first += count

    return paths


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
    nbests: list[NBest] = []
    paths = collapse_labels(labels, scores, lengths, blank)
    for path, total in zip(paths, totals, strict=True):
        confidences = tuple(map(math.exp, path.scores))
        nbests.append([Hypothesis(path.tokens, total, path.peaks, confidences)])
    return nbests


def align_tokens(
    log_probs: torch.Tensor, tokens: Sequence[int], blank: int
) -> tuple[CtcPath, float] | None:
    """Find the best CTC path through `tokens`, and its log-probability (forced alignment).

    Args:
        log_probs: (T, V) of one utterance.

    Returns:
        None if no CTC path exists: `tokens` has a blank, or there are too few frames.
    """
    # CTC needs a frame for each token, and a blank between equal neighbours.
    repeats = sum(token == next_token for token, next_token in pairwise(tokens))
    if blank in tokens or len(tokens) + repeats > log_probs.size(0):
        return None
    if not tokens:
        return _EMPTY, float(log_probs[:, blank].sum())

    from torchaudio.functional import forced_align  # slow import, needed for alignment only

    target = torch.tensor([list(tokens)], device=log_probs.device)
    labels, scores = forced_align(log_probs.unsqueeze(0).float(), target, blank=blank)
    length = torch.tensor([log_probs.size(0)], device=log_probs.device)
    (path,) = collapse_labels(labels.long(), scores, length, blank)
    return path, float(scores.sum())
