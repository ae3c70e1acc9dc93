"""Time-synchronous prefix beam search of a transducer with at most one token a frame, as in
WeNet.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from wenet_uio.families.transducer.model import Transducer
from wenet_uio.families.transducer.rnnt_greedy import choose
from wenet_uio.models.masks import length_mask
from wenet_uio.search.types import Hypothesis, NBest


class _Beam(NamedTuple):
    """K token sequences of each of B utterances; unused ones score -inf."""

    scores: torch.Tensor
    """(B, K) log-probability."""
    tokens: torch.Tensor
    """(B, K, U), -1 after the last token."""
    frames: torch.Tensor
    """(B, K, U) frame of each token, -1 after the last token."""
    confidences: torch.Tensor
    """(B, K, U) probability of each token at its frame."""
    count: torch.Tensor
    """(B, K) tokens of each sequence."""


class _Growth(NamedTuple):
    """Back-pointers of each beam entry, (B, K)."""

    parent: torch.Tensor
    """Place of the sequence in the beam before."""
    token: torch.Tensor
    """Token that the sequence may have grown by."""
    grown: torch.Tensor
    """True if it has."""


def rnnt_beam_search(
    model: Transducer,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    beam_size: int,
    ctc_log_probs: torch.Tensor | None = None,
    transducer_weight: float = 1.0,
) -> list[NBest]:
    """Keep the `beam_size` best token sequences of every utterance after every frame.

    At a frame a sequence stays as it is (blank) or grows by one token. If both lead to the same
    sequence, their probabilities are added. All utterances and sequences are searched together.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
        ctc_log_probs: (B, T', V), needed for a transducer_weight below 1.
        transducer_weight: share of the transducer in the probability of each frame; CTC has the
            rest.

    Returns:
        Per utterance at most `beam_size` hypotheses, best first, with frame and confidence of each
        token on one path.
    """
    batch, num_frames = encoder_out.shape[:2]
    device = encoder_out.device
    beam = _start(batch, beam_size, num_frames, device)
    start = torch.full((batch * beam_size, 1), model.blank, device=device)
    predicted, state = model.predictor(start, model.predictor.start(batch * beam_size))

    for frame in range(num_frames):
        log_probs = model.joint(
            encoder_out[:, frame : frame + 1], predicted.view(batch, beam_size, -1)
        )
        log_probs = log_probs.float().log_softmax(dim=2)
        if transducer_weight < 1.0:
            assert ctc_log_probs is not None, "a transducer_weight below 1 needs ctc_log_probs"
            log_probs = torch.logaddexp(
                log_probs + math.log(transducer_weight),
                ctc_log_probs[:, frame : frame + 1] + math.log1p(-transducer_weight),
            )

        beam, growth = _advance(beam, log_probs, model.blank, frame, frame < lengths)

        # Each sequence takes the predictor of its parent, and adds its token if it has grown.
        first_rows = torch.arange(batch, device=device).unsqueeze(1) * beam_size
        rows = (growth.parent + first_rows).flatten()
        predicted, state = predicted[rows], [tensor[rows] for tensor in state]
        predicted_after, state_after = model.predictor(growth.token.view(-1, 1), state)
        grown = growth.grown.flatten()
        predicted = choose(grown, predicted_after, predicted)
        state = [
            choose(grown, after, before) for after, before in zip(state_after, state, strict=True)
        ]

    return _hypotheses(beam)


def _start(batch: int, beam_size: int, size: int, device: torch.device) -> _Beam:
    """Return the empty sequence of every utterance, with room for `size` + 1 tokens."""
    scores = torch.full((batch, beam_size), -torch.inf, device=device)
    scores[:, 0] = 0.0
    tokens = torch.full((batch, beam_size, size + 1), -1, device=device)
    count = torch.zeros(batch, beam_size, dtype=torch.int64, device=device)

    return _Beam(
        scores, tokens, torch.full_like(tokens, -1), torch.zeros(tokens.shape, device=device), count
    )


def _advance(
    beam: _Beam, log_probs: torch.Tensor, blank: int, frame: int, active: torch.Tensor
) -> tuple[_Beam, _Growth]:
    """Advance all sequences by a frame.

    Args:
        log_probs: (B, K, V) of the frame.
        active: (B,); other utterances have ended and stay as they are.
    """
    beam_size = beam.scores.size(1)
    stays = beam.scores + log_probs[:, :, blank]
    grows = beam.scores.unsqueeze(2) + log_probs
    grows[:, :, blank] = -torch.inf
    stays, grows = _merge(stays, grows, beam.tokens[:, :, : frame + 1], beam.count)

    # Choices of each sequence (B, K, 1 + N): 0 is to stay, n is to grow by its n-th best token.
    best, token = grows.topk(min(beam_size, grows.size(2)), dim=2)
    choices = torch.cat((stays.unsqueeze(2), best), dim=2)
    scores, flat_choice = choices.flatten(1).topk(beam_size, dim=1)
    parent, choice = flat_choice // choices.size(2), flat_choice % choices.size(2)

    # A sequence that stays gets any token here, which is not used.
    flat_token = parent * token.size(2) + (choice - 1).clamp(min=0)
    added = token.flatten(1).gather(1, flat_token)
    confidence = log_probs.gather(2, token).exp().flatten(1).gather(1, flat_token)

    active = active.unsqueeze(1)
    unchanged = torch.arange(beam_size, device=parent.device).expand_as(parent)
    parent = torch.where(active, parent, unchanged)
    grown = active & (choice > 0) & (scores > -torch.inf)

    # Write the token behind the last of its sequence; -1 there means that it has not grown.
    end = beam.count.gather(1, parent).unsqueeze(2)
    new_values = (added, torch.full_like(added, frame), confidence)
    tokens, frames, confidences = (
        row.gather(1, parent.unsqueeze(2).expand_as(row)).scatter(
            2, end, torch.where(grown, value, -1).unsqueeze(2)
        )
        for row, value in zip((beam.tokens, beam.frames, beam.confidences), new_values, strict=True)
    )
    count = beam.count.gather(1, parent) + grown
    scores = torch.where(active, scores, beam.scores)

    return _Beam(scores, tokens, frames, confidences, count), _Growth(parent, added, grown)


def _merge(
    stays: torch.Tensor, grows: torch.Tensor, tokens: torch.Tensor, count: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the score of a growth that leads to another sequence of the beam to the score with which
    that sequence stays.

    Args:
        stays: (B, K) scores of sequences that stay as they are.
        grows: (B, K, V) scores of sequences that grow by a token.
        tokens: (B, K, U), -1 after the last token.
        count: (B, K) tokens of each sequence.

    Returns:
        `stays` with these scores added, and `grows` with -inf in their places.
    """
    # Sequence k is sequence j and one token more: (B, j, k).
    within = length_mask(count.flatten(), tokens.size(2)).view(tokens.shape)
    is_prefix = ((tokens.unsqueeze(2) == tokens.unsqueeze(1)) | ~within.unsqueeze(2)).all(dim=3)
    extends = is_prefix & (count.unsqueeze(2) + 1 == count.unsqueeze(1))

    # The last token of each k is the one that j grows by: (B, 1, k), the same for all j.
    last = tokens.gather(2, (count - 1).clamp(min=0).unsqueeze(2)).transpose(1, 2).clamp(min=0)
    last = last.expand(-1, tokens.size(1), -1)
    moved = grows.gather(2, last).masked_fill(~extends, -torch.inf)
    stays = torch.logaddexp(stays, moved.logsumexp(dim=1))
    is_moved = torch.zeros_like(grows).scatter_add_(2, last, extends.to(grows.dtype)) > 0

    return stays, grows.masked_fill(is_moved, -torch.inf)


def _hypotheses(beam: _Beam) -> list[NBest]:
    """Return the sequences of each utterance, best first; those of probability 0 are left out."""
    tokens, frames, confidences = beam.tokens.cpu(), beam.frames.cpu(), beam.confidences.cpu()
    nbests: list[NBest] = []
    for row, (lengths, scores) in enumerate(
        zip(beam.count.tolist(), beam.scores.tolist(), strict=True)
    ):
        nbests.append(
            [
                Hypothesis(
                    tuple(tokens[row, place, :length].tolist()),
                    score,
                    tuple(frames[row, place, :length].tolist()),
                    tuple(confidences[row, place, :length].tolist()),
                )
                for place, (length, score) in enumerate(zip(lengths, scores, strict=True))
                if score > -torch.inf
            ]
        )

    return nbests
