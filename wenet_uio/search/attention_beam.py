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
    *earlier_tokens, tokens = prompts.tokens.split(1, dim=1)
    for token in earlier_tokens:
        _, state = model.decoder.forward_one_step(state, token)

    # (B,) most tokens after the prompt. An encoder that does not mask padding gives every
    # utterance the frames of the longest, as WeNet does.
    most_steps = min(frames, model.decoder.max_tokens or frames) - len(earlier_tokens)
    limits = lengths if model.encoder.masks_padding else torch.full_like(lengths, frames)
    limits = (limits - len(earlier_tokens)).clamp(max=most_steps)

    # One empty hypothesis of each utterance; an utterance without frames has no tokens.
    scores = torch.zeros(batch, 1, device=device)
    history = torch.empty(batch, 1, 0, dtype=torch.int64, device=device)
    gains = torch.empty(batch, 1, 0, device=device)  # what the decoder adds with each token
    ended = ((lengths == 0) | (limits <= 0)).unsqueeze(1)

    for step in range(1, most_steps + 1):
        log_probs, state = model.decoder.forward_one_step(state, tokens)
        if prompts.rules is not None:
            log_probs = prompts.rules.apply(log_probs, history)

        # The best next tokens of each hypothesis, (B, K, N)
        num_units = log_probs.size(2)
        if ctc is None:
            best, candidates = log_probs.topk(min(beam_size, num_units), dim=2)
            decoder_gains = best
        else:
            count = min(_CANDIDATES * beam_size, num_units)
            decoder_gains, candidates = _best_candidates_and_eos(log_probs, count, model.eos)
            best = ctc.combine(decoder_gains, candidates, tokens)

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
        new_gains = decoder_gains.flatten(1).gather(1, choice).unsqueeze(2)
        gains = torch.cat((_select_rows(gains, parents), new_gains), dim=2)
        ended = (tokens == model.eos) | (step >= limits).unsqueeze(1)
        settled = _is_settled(scores, ended, _count_tokens(history, model.eos), limits, options)
        scores = scores.masked_fill(settled & ~ended, -torch.inf)
        ended |= settled
        if bool(ended.all()):
            break

    nbests = _ranked_hypotheses(history, gains, scores, model.eos, options.length_penalty)
    if ctc is not None:
        return nbests  # a score with a part of CTC tells no confidence of the decoder

    for nbest, most_tokens in zip(nbests, limits.tolist(), strict=True):
        for rank, hypothesis in enumerate(nbest):
            nbest[rank] = _add_confidence(hypothesis, most_tokens, options.length_penalty)
    return nbests


def _is_settled(
    scores: torch.Tensor,
    ended: torch.Tensor,
    lengths: torch.Tensor,
    limits: torch.Tensor,
    options: DecodeOptions,
) -> torch.Tensor:
    """Tell for each utterance whether no hypothesis can overtake its best ones, which have ended:
    (B, 1).

    Args:
        scores: (B, K) of the hypotheses.
        ended: (B, K) whether a hypothesis has ended.
        lengths: (B, K) tokens.
        limits: (B,) most tokens.
        options: nbest, the number of hypotheses that are wanted.
    """
    wanted = min(options.nbest or options.beam_size, options.beam_size)
    all_ended = ended.all(dim=1, keepdim=True)
    if scores.size(1) < wanted:  # the first steps of a small vocabulary
        return all_ended

    penalty = options.length_penalty
    final_scores = (scores / lengths**penalty).masked_fill(~ended, -torch.inf)
    lowest_wanted = final_scores.topk(wanted, dim=1).values[:, -1:]

    # Scores only fall, so the most that a hypothesis can reach is its score at the length that
    # suits it best.
    best_length = limits.unsqueeze(1) if penalty > 0 else lengths
    rival_scores = (scores / best_length**penalty).masked_fill(ended, -torch.inf)
    best_rival = rival_scores.amax(dim=1, keepdim=True)
    has_enough = (lowest_wanted > -torch.inf) | all_ended
    return (best_rival <= lowest_wanted) & has_enough


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
    """Let hypotheses that have ended go on with eos only, at no cost.

    Args:
        best: (B, K, N) log-probabilities of the next tokens.
        candidates: (B, K, N) these tokens.
        ended: (B, K) whether a hypothesis has ended.
    """
    one_is_free = torch.full_like(best, -torch.inf)
    one_is_free[..., 0] = 0.0
    ended = ended.unsqueeze(2)
    return torch.where(ended, one_is_free, best), candidates.masked_fill(ended, eos)


def _select_rows(history: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
    """Return rows `parents` (B, K2) of a history (B, K, U): (B, K2, U)."""
    return history.gather(1, parents.unsqueeze(2).expand(-1, -1, history.size(2)))


def _ranked_hypotheses(
    history: torch.Tensor,
    gains: torch.Tensor,
    scores: torch.Tensor,
    eos: int,
    length_penalty: float,
) -> list[NBest]:
    """Return the hypotheses of each utterance, best first, without eos and the impossible ones.

    Args:
        history: (B, K, U) tokens.
        gains: (B, K, U) log-probabilities of the decoder for them.
        scores: (B, K) log-probabilities.
        eos: fills the tokens of a hypothesis after its end.
        length_penalty: hypotheses are compared by score / tokens ** length_penalty.
    """
    final_scores = scores / _count_tokens(history, eos) ** length_penalty
    final_scores, order = final_scores.sort(dim=1, descending=True, stable=True)
    tokens = _select_rows(history, order).cpu().numpy()
    probabilities = _select_rows(gains, order).double().exp().cpu().numpy()

    nbests: list[NBest] = []
    for rows in zip(tokens, probabilities, final_scores.tolist(), strict=True):
        nbest = []
        for row, confidences, score in zip(*rows, strict=True):
            if score > -torch.inf:
                is_text = row != eos
                text, sure = tuple(row[is_text].tolist()), tuple(confidences[is_text].tolist())
                nbest.append(Hypothesis(text, score, decoder_confidences=sure))
        nbests.append(nbest)

    return nbests


def _add_confidence(hypothesis: Hypothesis, most_tokens: int, length_penalty: float) -> Hypothesis:
    """Add `decoder_confidence`: the geometric mean of the probabilities of the tokens and eos.

    Args:
        hypothesis: its score is that of the decoder alone.
        most_tokens: a hypothesis of so many tokens was cut, and has no eos.
        length_penalty: that of the score.
    """
    count = len(hypothesis.tokens)
    if not count:
        return hypothesis

    log_prob = hypothesis.score * count**length_penalty
    confidence = math.exp(log_prob / min(count + 1, most_tokens))
    return replace(hypothesis, decoder_confidence=confidence)
