"""From a label for every frame to tokens and their frames."""

from __future__ import annotations

from itertools import pairwise

import torch
from torchaudio.functional import forced_align


def collapse(
    labels: torch.Tensor, scores: torch.Tensor, lengths: torch.Tensor, blank: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Merge repeated labels and drop blanks.

    Args:
        labels: (B, T) label of each frame.
        scores: (B, T) its log-probability.
        lengths: (B,) frames.

    Returns:
        per utterance its tokens, and of each the frame within its run where the score is highest.
    """
    batch, frames = labels.shape
    if frames == 0:
        return [((), ())] * batch
    place = torch.arange(frames, device=labels.device)
    starts = torch.ones_like(labels, dtype=torch.bool)
    starts[:, 1:] = labels[:, 1:] != labels[:, :-1]
    counted = (labels != blank) & (place < lengths.unsqueeze(1))
    run = starts.flatten().cumsum(0) - 1  # every row starts a run, so runs never cross utterances
    runs = batch * frames
    scores, counted = scores.flatten().masked_fill(~counted.flatten(), -torch.inf), counted.flatten()
    highest = scores.new_full((runs,), -torch.inf).scatter_reduce(0, run, scores, "amax")
    at_peak = torch.where(counted & (scores == highest[run]), place.repeat(batch), frames)
    peak = place.new_full((runs,), frames).scatter_reduce(0, run, at_peak, "amin")
    first = starts.flatten() & counted
    rows = place.new_tensor(range(batch)).repeat_interleave(frames)[first]
    per_row = torch.bincount(rows, minlength=batch).tolist()
    tokens = labels.flatten()[first].cpu().split(per_row)
    places = peak[run[first]].cpu().split(per_row)
    return [(tuple(t.tolist()), tuple(p.tolist())) for t, p in zip(tokens, places, strict=True)]


def token_frames(log_probs: torch.Tensor, tokens: tuple[int, ...], blank: int) -> tuple[int, ...] | None:
    """The frame of each token on the best CTC path through `tokens`.

    Args:
        log_probs: (T, V) of one utterance.

    Returns:
        None when no CTC path has the tokens: a blank among them, or too few frames.
    """
    repeats = sum(left == right for left, right in pairwise(tokens))
    if not tokens:
        return ()
    if blank in tokens or len(tokens) + repeats > log_probs.size(0):
        return None
    target = torch.tensor([tokens], device=log_probs.device)
    labels, scores = forced_align(log_probs.unsqueeze(0).float(), target, blank=blank)
    length = torch.tensor([log_probs.size(0)], device=log_probs.device)
    return collapse(labels.long(), scores, length, blank)[0][1]
