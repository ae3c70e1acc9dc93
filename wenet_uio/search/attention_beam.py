"""Search token by token with the left-to-right attention decoder, alone or together with CTC."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.masks import length_mask
from wenet_uio.search.ctc_prefix_score import CtcPrefixScore
from wenet_uio.search.decode import Prompts
from wenet_uio.search.types import DecodeOptions, Hypothesis, NBest

_CANDIDATES = 2
"""In joint search the decoder proposes this many times `beam_size` tokens; CTC may reorder them."""


def attention_beam_search(
    model: ASRModel,
    encoder_out: torch.Tensor,
    lengths: torch.Tensor,
    options: DecodeOptions,
    prompts: Prompts,
    ctc: CtcPrefixScore | None = None,
) -> list[NBest]:
    """Extend `beam_size` hypotheses of every utterance until the best ones have ended.

    A hypothesis has at most as many tokens as the utterance has frames. An utterance ends as soon
    as `nbest` hypotheses have ended and none of the others can overtake them.

    Args:
        encoder_out: (B, T', D).
        lengths: (B,) frames.
        options: beam_size, nbest; hypotheses are compared by score / tokens ** length_penalty.
        prompts: the first tokens; they count as tokens for the limit, but not for the scores.
        ctc: adds the CTC score to that of every token (joint CTC/attention search).

    Returns:
        Per utterance the hypotheses that have ended, without the prompt, best first: the `nbest`
        best of `beam_size`, and others that ended by chance.
    """
    beam_size = options.beam_size
    batch, frames = encoder_out.shape[:2]
    device = encoder_out.device
    state = model.decoder.start(encoder_out, length_mask(lengths, frames).unsqueeze(1))
    *earlier, tokens = prompts.tokens.split(1, dim=1)
    for token in earlier:
        _, state = model.decoder.forward_one_step(state, token)

    scores = torch.zeros(batch, 1, device=device)
    # (B,) most tokens after the prompt. An encoder that does not mask padding gives every
    # utterance the frames of the longest, as WeNet does.
    most = min(frames, model.decoder.max_tokens or frames)
    limits = lengths if model.encoder.masks_padding else torch.full_like(lengths, frames)
    limits = limits.clamp(max=most) - len(earlier)
    # An utterance without frames has no tokens.
    ended = ((lengths == 0) | (limits <= 0)).unsqueeze(1)
    history = torch.empty(batch, 1, 0, dtype=torch.int64, device=device)

    for step in range(1, most - len(earlier) + 1):
        log_probs, state = model.decoder.forward_one_step(state, tokens)
        if prompts.rules is not None:
            log_probs = prompts.rules.apply(log_probs, history)

        # The best next tokens of each hypothesis, (B, K, N)
        units = log_probs.size(2)
        if ctc is None:
            best, candidates = log_probs.topk(min(beam_size, units), dim=2)
        else:
            count = min(_CANDIDATES * beam_size, units)
            best, candidates = _best_candidates_and_eos(log_probs, count, model.eos)
            best = ctc.combine(best, candidates, tokens)

        # The best hypotheses of each utterance, (B, K)
        best, candidates = _extend_ended_by_eos(best, candidates, ended, model.eos)
        sums = (scores.unsqueeze(2) + best).flatten(1)
        scores, choice = sums.topk(min(beam_size, sums.size(1)), dim=1)
        parents = choice // best.size(2)
        tokens = candidates.flatten(1).gather(1, choice)
        state = state.reorder(parents)
        if ctc is not None:
            ctc.choose(choice)

        history = torch.cat((_select_rows(history, parents), tokens.unsqueeze(2)), dim=2)
        ended = (tokens == model.eos) | (step >= limits).unsqueeze(1)
        settled = _is_settled(scores, ended, _count_tokens(history, model.eos), limits, options)
        scores = scores.masked_fill(settled & ~ended, -torch.inf)
        ended |= settled
        if bool(ended.all()):
            break

    nbests = _ranked_hypotheses(history, scores, model.eos, options.length_penalty)
    if ctc is not None:
        return nbests  # a score with a part of CTC tells no confidence of the decoder

    return _add_confidences(nbests, limits, options.length_penalty)


def _is_settled(
    scores: torch.Tensor,
    ended: torch.Tensor,
    lengths: torch.Tensor,
    limits: torch.Tensor,
    options: DecodeOptions,
) -> torch.Tensor:
    """Tell for each utterance whether its best hypotheses are known, (B, 1).

    Args:
        scores: (B, K).
        ended: (B, K).
        lengths: (B, K) tokens.
        limits: (B,) most tokens.
        options: nbest, the number of hypotheses that are wanted.
    """
    wanted = min(options.nbest or options.beam_size, options.beam_size)
    if scores.size(1) < wanted:  # the first steps of a small vocabulary
        return ended.all(dim=1, keepdim=True)

    penalty = options.length_penalty
    best = (scores / lengths**penalty).masked_fill(~ended, -torch.inf).topk(wanted, dim=1).values
    last = best[:, -1:]
    # Scores only fall, so the most that a hypothesis can reach is its score at the length that
    # suits it best.
    furthest = limits.unsqueeze(1) if penalty > 0 else lengths
    rival = (scores / furthest**penalty).masked_fill(ended, -torch.inf).amax(dim=1, keepdim=True)
    return (rival <= last) & ((last > -torch.inf) | ended.all(dim=1, keepdim=True))


def _count_tokens(history: torch.Tensor, eos: int) -> torch.Tensor:
    """Count the tokens of each hypothesis before eos, at least 1."""
    return (history != eos).sum(dim=2).clamp(min=1)


def _best_candidates_and_eos(
    log_probs: torch.Tensor, count: int, eos: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `count` best tokens (B, K, N) with their log-probabilities, always with eos.

    If eos is not among them, it replaces the last one.
    """
    candidates = log_probs.topk(count, dim=2).indices
    lacking = (candidates != eos).all(dim=2)
    candidates[..., -1].masked_fill_(lacking, eos)
    return log_probs.gather(2, candidates), candidates


def _extend_ended_by_eos(
    best: torch.Tensor, candidates: torch.Tensor, ended: torch.Tensor, eos: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Extend hypotheses that have ended by eos only, at no cost."""
    free = torch.full_like(best, -torch.inf)
    free[..., 0] = 0.0
    ended = ended.unsqueeze(2)
    return torch.where(ended, free, best), candidates.masked_fill(ended, eos)


def _select_rows(history: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
    """Return rows `parents` (B, K2) of history (B, K, U): (B, K2, U)."""
    return history.gather(1, parents.unsqueeze(2).expand(-1, -1, history.size(2)))


def _ranked_hypotheses(
    history: torch.Tensor, scores: torch.Tensor, eos: int, length_penalty: float
) -> list[NBest]:
    """Return hypotheses sorted by score; history (B, K, U), scores (B, K)."""
    values = scores / _count_tokens(history, eos) ** length_penalty
    values, order = values.sort(dim=1, descending=True, stable=True)
    rows = _select_rows(history, order).cpu().numpy()

    nbests: list[NBest] = []
    for utterance_rows, utterance_values in zip(rows, values.tolist(), strict=True):
        nbest = [
            Hypothesis(tuple(row[row != eos].tolist()), value)
            for row, value in zip(utterance_rows, utterance_values, strict=True)
            if value > -torch.inf
        ]
        nbests.append(nbest)

    return nbests


def _add_confidences(
    nbests: list[NBest], limits: torch.Tensor, length_penalty: float
) -> list[NBest]:
    """Add `decoder_confidence` to hypotheses whose scores are those of the decoder alone.

    Args:
        nbests: of each utterance.
        limits: (B,) tokens of the longest hypothesis of each utterance, which has no eos.
        length_penalty: that of the scores.
    """
    with_confidences: list[NBest] = []
    for nbest, most in zip(nbests, limits.tolist(), strict=True):
        confidences: list[float | None] = []
        for hypothesis in nbest:
            count = len(hypothesis.tokens)
            if not count:
                confidences.append(None)
                continue
            log_prob = hypothesis.score * count**length_penalty
            confidences.append(math.exp(log_prob / min(count + 1, most)))

        with_confidences.append(
            [
                replace(hypothesis, decoder_confidence=confidence)
                for hypothesis, confidence in zip(nbest, confidences, strict=True)
            ]
        )

    return with_confidences
