"""Reorder the hypotheses of CTC prefix beam search by scores of the attention decoder."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.utils.rnn import pad_sequence

from wenet_uio.base.messages import warn_once
from wenet_uio.models.decoder import reversed_hypotheses
from wenet_uio.models.interfaces import RescoringModel
from wenet_uio.models.masks import length_mask
from wenet_uio.search.types import SCORES_TOGETHER, Hypothesis, NBest

_MOST_ROWS = 512
"""Hypotheses that the decoder scores together, however short: each has a copy of its frames."""


def attention_rescoring(
    model: RescoringModel,
    nbests: list[NBest],
    encoded: tuple[torch.Tensor, torch.Tensor],
    ctc_weight: float,
    reverse_weight: float,
    prompts: torch.Tensor | None = None,
) -> list[NBest]:
    """Sort hypotheses by ctc_weight x CTC score + decoder score.

    Args:
        nbests: hypotheses of each utterance with their CTC scores.
        encoded: encoder frames (B, T', D) and lengths (B,).
        reverse_weight: share of the right-to-left decoder in the decoder score; of a model
            without one, it is 0, and a warning says so.
        prompts: (B, P) first tokens of the decoder; they do not count for the score. None: sos.
    """
    if reverse_weight > 0 and not model.decoder.bidirectional:  # as in the recipes of WeNet
        warn_once(
            f"reverse_weight {reverse_weight:g} is 0 for this model, whose decoder has no "
            "right-to-left half (only decoder: bitransformer has one)"
        )
        reverse_weight = 0.0

    encoder_out, lengths = encoded
    starts = prompts
    if starts is None:
        starts = torch.full((len(lengths), 1), model.sos, device=lengths.device)

    # The hypotheses of all utterances in one list, and the utterance of each
    hypotheses: list[Hypothesis] = []
    utterances: list[int] = []
    for utterance, nbest in enumerate(nbests):
        hypotheses += nbest
        utterances += [utterance] * len(nbest)

    scores: list[float] = []
    confidences: list[tuple[float, ...]] = []
    size = _count_scored_together(model, hypotheses, starts.size(1))
    for first in range(0, len(hypotheses), size):
        rows = torch.tensor(utterances[first : first + size], device=encoder_out.device)
        tokens = [hypothesis.tokens for hypothesis in hypotheses[first : first + size]]
        memory = encoder_out[rows], lengths[rows]
        totals, log_probs = _decoder_scores(model, tokens, memory, reverse_weight, starts[rows])
        scores += totals.tolist()
        for row, text in zip(log_probs.double().exp().tolist(), tokens, strict=True):
            confidences.append(tuple(row[: len(text)]))

    rescored: list[NBest] = [[] for _ in nbests]
    for utterance, hypothesis, score, sure in zip(
        utterances, hypotheses, scores, confidences, strict=True
    ):
        combined = score + ctc_weight * hypothesis.score
        rescored[utterance].append(replace(hypothesis, score=combined, decoder_confidences=sure))

    for nbest in rescored:
        nbest.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
    return rescored


def _count_scored_together(
    model: RescoringModel, hypotheses: list[Hypothesis], prompt_tokens: int
) -> int:
    """Return how many hypotheses, after a prompt, the decoder scores together, to bound memory."""
    longest = max((len(hypothesis.tokens) for hypothesis in hypotheses), default=0)
    scores_of_longest = (prompt_tokens + longest) * model.vocab_size
    most_rows = SCORES_TOGETHER // scores_of_longest
    return min(max(most_rows, 1), _MOST_ROWS)


def _decoder_scores(
    model: RescoringModel,
    tokens: list[tuple[int, ...]],
    encoded: tuple[torch.Tensor, torch.Tensor],
    reverse_weight: float,
    prompts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability (N,) of each token sequence with eos, after its prompt (N, P), and
    those of its tokens and eos by the left-to-right decoder (N, U + 1).
    """
    memory, memory_lengths = encoded
    lengths = torch.tensor([len(row) for row in tokens], device=memory.device) + prompts.size(1)
    rows = [torch.tensor(row, dtype=torch.int64) for row in tokens]
    text = pad_sequence(rows, batch_first=True, padding_value=model.eos)
    hyps = torch.cat((prompts, text.to(memory.device)), dim=1)  # (N, U)
    reverse = reversed_hypotheses(hyps, lengths, model.eos)
    memory_mask = length_mask(memory_lengths, memory.size(1)).unsqueeze(1)
    forward_logits, backward_logits = model.decoder(
        memory, memory_mask, hyps, lengths, reverse, reverse_weight
    )

    # The first token that counts follows the last one of the prompt.
    first = prompts.size(1) - 1
    log_probs = _next_log_probs(
        forward_logits[:, first:], hyps[:, first:], lengths - first, model.eos
    )
    scores = log_probs.sum(dim=1)
    if reverse_weight > 0:
        reverse_scores = _next_log_probs(backward_logits, reverse, lengths, model.eos).sum(dim=1)
        scores = (1 - reverse_weight) * scores + reverse_weight * reverse_scores

    return scores, log_probs


def _next_log_probs(
    logits: torch.Tensor, hyps: torch.Tensor, lengths: torch.Tensor, eos: int
) -> torch.Tensor:
    """Return the log-probabilities of the next tokens in each sequence; 0 after its end.

    Args:
        logits: (N, U, V).
        hyps: (N, U) tokens with sos.
        lengths: (N,) tokens of each sequence.

    Returns:
        (N, U).
    """
    following = torch.nn.functional.pad(hyps[:, 1:], (0, 1), value=eos)  # next token of each token
    values = logits.float().log_softmax(dim=-1).gather(2, following.unsqueeze(2)).squeeze(2)
    return values.masked_fill(~length_mask(lengths, hyps.size(1)), 0.0)
