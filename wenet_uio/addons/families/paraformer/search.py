"""Searches of a Paraformer, which scores all tokens of an utterance independently of each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch

from wenet_uio.addons.families.paraformer.model import Paraformer
from wenet_uio.search.decode import Decoding
from wenet_uio.search.types import Hypothesis, NBest


class ScoredTokens(NamedTuple):
    """The scores of all tokens of B utterances."""

    log_probs: torch.Tensor
    """(B, N, V)."""
    counts: torch.Tensor
    """(B,) numbers of tokens."""
    frames: torch.Tensor
    """(B, N) encoder frames of the tokens, which may be parts of a frame."""


def decode_greedily(batch: Decoding[Paraformer]) -> list[NBest]:
    """Decode in the mode paraformer_greedy_search."""
    return paraformer_greedy_search(batch.once(score_tokens), batch.silent)


def decode_with_beam(batch: Decoding[Paraformer]) -> list[NBest]:
    """Decode in the mode paraformer_beam_search."""
    return paraformer_beam_search(batch.once(score_tokens), batch.options.beam_size, batch.silent)


def score_tokens(batch: Decoding[Paraformer]) -> ScoredTokens:
    """Score all tokens of a batch; both modes use the result."""
    model = batch.model
    log_probs, predicted = model.predict(batch.encoder_out, batch.lengths)
    return ScoredTokens(log_probs, predicted.counts, model.token_frames(predicted))


def paraformer_greedy_search(scored: ScoredTokens, silent: Collection[int] = ()) -> list[NBest]:
    """Take the best label of each token.

    Args:
        scored: what the model computes.
        silent: labels that are no text, such as that of <eos>; they are left out.

    Returns:
        Per utterance one hypothesis with frame and confidence of each token. Its score is the
        log-probability of all tokens, with those that are left out.
    """
    return paraformer_beam_search(scored, 1, silent)


def paraformer_beam_search(
    scored: ScoredTokens, beam_size: int, silent: Collection[int] = ()
) -> list[NBest]:
    """Find the `beam_size` most probable sequences of labels for each utterance.

    Args:
        scored: what the model computes.
        beam_size: largest number of hypotheses. An utterance has fewer if sequences differ only in
            labels that are left out.
        silent: labels that are no text, such as that of <eos>; they are left out.

    Returns:
        Per utterance the hypotheses, the best first, with frame and confidence of each token.
    """
    num_labels = min(beam_size, scored.log_probs.size(2))
    log_probs, labels = scored.log_probs.topk(num_labels, dim=2)  # (B, N, K)

    results = []
    for row, count in enumerate(scored.counts.tolist()):
        frames = scored.frames[row, :count].tolist()
        results.append(
            _search_utterance(
                log_probs[row, :count], labels[row, :count], frames, beam_size, silent
            )
        )
    return results


def _search_utterance(
    log_probs: torch.Tensor,
    labels: torch.Tensor,
    frames: Sequence[float],
    beam_size: int,
    silent: Collection[int],
) -> NBest:
    """Return the best sequences of one utterance by a beam search from token to token.

    Args:
        log_probs, labels: (N, K) those of the K best labels of each token.
        frames: (N,) of each token.
        silent: labels that are not part of the text.
    """
    num_labels = labels.size(1)
    scores = log_probs.new_zeros(1)  # of the paths in the beam
    # (paths, tokens so far): which of the K labels a path takes for each token.
    choices = torch.zeros(1, 0, dtype=torch.long, device=log_probs.device)
    for gains in log_probs:
        totals = (scores.unsqueeze(1) + gains).flatten()  # (paths * K,)
        scores, best_places = totals.topk(min(beam_size, len(totals)))
        parents = torch.div(best_places, num_labels, rounding_mode="floor")
        new_choices = best_places % num_labels
        choices = torch.cat((choices[parents], new_choices.unsqueeze(1)), dim=1)

    choices_of_tokens = choices.t()
    paths = labels.gather(1, choices_of_tokens).t().tolist()
    confidences_of_paths = log_probs.gather(1, choices_of_tokens).exp().t().tolist()

    # Paths come from the best to the worst. The first of those with the same text stays.
    best: dict[tuple[int, ...], Hypothesis] = {}
    for path, confidences, score in zip(paths, confidences_of_paths, scores.tolist(), strict=True):
        spoken = [place for place, token in enumerate(path) if token not in silent]
        text = tuple(path[place] for place in spoken)
        text_frames = tuple(frames[place] for place in spoken)
        text_confidences = tuple(confidences[place] for place in spoken)
        best.setdefault(text, Hypothesis(text, score, text_frames, text_confidences))

    return list(best.values())
