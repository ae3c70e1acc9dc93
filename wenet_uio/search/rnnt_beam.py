"""Time-synchronous prefix beam search of a transducer, with at most one token a frame, as WeNet's."""

from __future__ import annotations

import math

import torch

from wenet_uio.models.masks import length_mask
from wenet_uio.models.transducer import Transducer
from wenet_uio.search.rnnt_greedy import choose
from wenet_uio.search.types import Hypothesis, NBest


def rnnt_beam_search(
    model: Transducer,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    beam_size: int,
    ctc_log_probs: torch.Tensor | None = None,
    transducer_weight: float = 1.0,
) -> list[NBest]:
    """Keep the `beam_size` best token sequences of every utterance after every frame.

    At a frame a sequence stays what it is (blank) or grows by one token; both ways to one sequence add up. All
    utterances and sequences go side by side.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
        ctc_log_probs: (B, T', V), needed for a transducer_weight below 1.
        transducer_weight: share of the transducer in the probability of each frame; CTC's head has the rest.

    Returns:
        per utterance at most `beam_size` hypotheses, best first, with frame and confidence of each token on one of its
        paths.
    """
    batch, size = encoder_out.shape[:2]
    device = encoder_out.device
    scores = torch.full((batch, beam_size), -torch.inf, device=device)
    scores[:, 0] = 0.0
    tokens = torch.full((batch, beam_size, size + 1), -1, device=device)
    frames = torch.full_like(tokens, -1)
    confidences = torch.zeros(tokens.shape, device=device)
    count = torch.zeros(batch, beam_size, dtype=torch.int64, device=device)
    start = torch.full((batch * beam_size, 1), model.blank, device=device)
    predicted, state = model.predictor(start, model.predictor.start(batch * beam_size))
    for frame in range(size):
        log_probs = model.joint(encoder_out[:, frame : frame + 1], predicted.view(batch, beam_size, -1))
        log_probs = log_probs.log_softmax(dim=2)
        if transducer_weight < 1.0:
            log_probs = torch.logaddexp(
                log_probs + math.log(transducer_weight),
                ctc_log_probs[:, frame : frame + 1] + math.log1p(-transducer_weight),
            )
        stays = scores + log_probs[:, :, model.blank]
        grows = scores.unsqueeze(2) + log_probs
        grows[:, :, model.blank] = -torch.inf
        stays, grows = _merge(stays, grows, tokens[:, :, : frame + 1], count)
        best, token = grows.topk(min(beam_size, grows.size(2)), dim=2)
        # In each row: to stay, then the best tokens to grow by.
        options = torch.cat((stays.unsqueeze(2), best), dim=2)
        grown_scores, choice = options.flatten(1).topk(beam_size, dim=1)
        parent, way = choice // options.size(2), choice % options.size(2)
        place = parent * token.size(2) + (way - 1).clamp(min=0)
        added = token.flatten(1).gather(1, place)
        sure = log_probs.gather(2, token).exp().flatten(1).gather(1, place)

        active = (frame < lengths).unsqueeze(1)  # an utterance that is over stays as it is
        own = torch.arange(beam_size, device=device).expand_as(parent)
        parent = torch.where(active, parent, own)
        grown = active & (way > 0) & (grown_scores > -torch.inf)
        scores = torch.where(active, grown_scores, scores)
        end = count.gather(1, parent).unsqueeze(2)
        tokens, frames, confidences = (
            row.gather(1, parent.unsqueeze(2).expand_as(row)).scatter(
                2, end, torch.where(grown, value, -1).unsqueeze(2)
            )
            for row, value in ((tokens, added), (frames, torch.full_like(added, frame)), (confidences, sure))
        )
        count = count.gather(1, parent) + grown
        rows = (parent + torch.arange(batch, device=device).unsqueeze(1) * beam_size).flatten()
        predicted, state = predicted[rows], [part[rows] for part in state]
        after, state_after = model.predictor(added.view(-1, 1), state)
        predicted = choose(grown.flatten(), after, predicted)
        state = [choose(grown.flatten(), new, old) for new, old in zip(state_after, state, strict=True)]
    return _hypotheses(tokens.cpu(), frames.cpu(), confidences.cpu(), count.tolist(), scores.tolist())


def _merge(
    stays: torch.Tensor, grows: torch.Tensor, tokens: torch.Tensor, count: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where sequence j and one token more is sequence k of the beam, move the score of growing there to staying.

    Args:
        stays: (B, K). grows: (B, K, V). tokens: (B, K, U), behind their count -1. count: (B, K).
    """
    within = length_mask(count.flatten(), tokens.size(2)).view(tokens.shape)
    same = ((tokens.unsqueeze(2) == tokens.unsqueeze(1)) | ~within.unsqueeze(2)).all(dim=3)
    extends = same & (count.unsqueeze(2) + 1 == count.unsqueeze(1))  # (B, j, k)
    last = tokens.gather(2, (count - 1).clamp(min=0).unsqueeze(2)).transpose(1, 2).clamp(min=0)  # (B, 1, k)
    last = last.expand(-1, tokens.size(1), -1)
    moved = grows.gather(2, last).masked_fill(~extends, -torch.inf)
    stays = torch.logaddexp(stays, moved.logsumexp(dim=1))
    gone = torch.zeros_like(grows).scatter_add_(2, last, extends.to(grows.dtype)) > 0
    return stays, grows.masked_fill(gone, -torch.inf)


def _hypotheses(
    tokens: torch.Tensor,
    frames: torch.Tensor,
    confidences: torch.Tensor,
    count: list[list[int]],
    scores: list[list[float]],
) -> list[NBest]:
    nbests: list[NBest] = []
    for row, (lengths, values) in enumerate(zip(count, scores, strict=True)):
        found = [
            (k, length, score)
            for k, (length, score) in enumerate(zip(lengths, values, strict=True))
            if score > -torch.inf
        ]
        nbests.append(
            [
                Hypothesis(
                    tuple(tokens[row, k, :length].tolist()),
                    score,
                    tuple(frames[row, k, :length].tolist()),
                    tuple(confidences[row, k, :length].tolist()),
                )
                for k, length, score in found
            ]
        )
    return nbests
