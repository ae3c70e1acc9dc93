"""Decode a batch of features to hypotheses, in one or several decode modes.

`decode` encodes the batch. A `Decoding` is the batch on its way: the functions of the modes take it, and
what several of them need is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from wenet_uio.models.arithmetic import autocast, dtype_for
from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.ctc_path import align_tokens
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.modes import check_family, check_options
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.types import SCORES_TOGETHER, DecodeOptions, Hypothesis, NBest

AnyModel = TypeVar("AnyModel", bound=DecodingModel, covariant=True)
Result = TypeVar("Result")


class Search(NamedTuple):
    """Modes, options and scorers of a decoding run."""

    modes: Sequence[str]
    options: DecodeOptions
    scorers: Sequence[PrefixScorer] = ()
    """Hot words and a language model."""


@torch.inference_mode()
def decode(
    model: DecodingModel,
    feats: torch.Tensor,
    feats_lengths: torch.Tensor,
    modes: Sequence[str],
    options: DecodeOptions,
    scorers: Sequence[PrefixScorer] = (),
) -> dict[str, list[NBest]]:
    """Decode a batch in each of `modes`, in the arithmetic `options.dtype` (None: fp32).

    What modes share is computed once.

    Args:
        feats: (B, T, F).
        feats_lengths: (B,) frames.
        scorers: hot words and language model; ctc_prefix_beam_search and attention_rescoring use
            them.

    Returns:
        {mode: n-best hypotheses of each utterance}, modes in the order given.

    Raises:
        ValueError: before any work, for an unknown mode or for a transducer mode with another
            model.
    """
    check_search(model, modes, options)
    with autocast(feats.device, dtype_for(options.dtype or "fp32", feats.device)):
        encoded = model.family.decoding.encode(model, feats, feats_lengths, options)
        return decode_encoded(model, encoded, Search(modes, options, scorers))


@torch.inference_mode()
def decode_encoded(
    model: DecodingModel,
    encoded: tuple[torch.Tensor, torch.Tensor],
    search: Search,
    ctc_prefixes: list[NBest] | None = None,
) -> dict[str, list[NBest]]:
    """As `decode`, from encoder frames (B, T', D) and their lengths (B,).

    Utterances whose CTC scores are more than SCORES_TOGETHER are searched in groups.

    Args:
        ctc_prefixes: hypotheses of CTC prefix beam search, if it ran before.
    """
    check_search(model, search.modes, search.options)
    encoder_out, lengths = encoded
    size = _group_size(model, encoder_out, search)
    if size >= len(encoder_out):
        return _search_batch(model, encoded, search, ctc_prefixes)

    results: dict[str, list[NBest]] = {mode: [] for mode in search.modes}
    for first in range(0, len(encoder_out), size):
        rows = slice(first, first + size)
        group = encoder_out[rows], lengths[rows]
        group_search = search._replace(options=search.options.select_utterances(rows))
        group_prefixes = None if ctc_prefixes is None else ctc_prefixes[rows]
        for mode, nbests in _search_batch(model, group, group_search, group_prefixes).items():
            results[mode] += nbests

    return results


def _search_batch(
    model: DecodingModel,
    encoded: tuple[torch.Tensor, torch.Tensor],
    search: Search,
    ctc_prefixes: list[NBest] | None,
) -> dict[str, list[NBest]]:
    """As `decode_encoded`, all utterances together."""
    batch = Decoding(model, encoded, search.options, search.scorers)
    if ctc_prefixes is not None:
        batch.ctc_prefixes = ctc_prefixes

    searches = {mode.name: mode.search for mode in model.family.decoding.modes}
    results: dict[str, list[NBest]] = {}
    for mode in search.modes:
        nbests = searches[mode](batch)
        results[mode] = [_finish_nbest(batch, row, nbest) for row, nbest in enumerate(nbests)]

    return results


def _group_size(model: DecodingModel, encoder_out: torch.Tensor, search: Search) -> int:
    """Return how many utterances of encoder frames (B, T', D) are searched together, at least 1."""
    needs = {mode.name: mode.needs for mode in model.family.decoding.modes}
    reads_ctc = model.ctc_weight != 0 and (
        search.options.token_times or any("ctc_weight" in needs[mode] for mode in search.modes)
    )
    count, frames, _ = encoder_out.shape
    if frames == 0 or not reads_ctc:
        return max(1, count)
    return max(1, SCORES_TOGETHER // (frames * model.vocab_size))


def check_search(model: DecodingModel, modes: Sequence[str], options: DecodeOptions) -> None:
    """Raise a ValueError for modes or options that the family of `model` does not have."""
    check_family(model, modes)
    check_of_family = model.family.decoding.check_search
    if check_of_family is not None:
        check_of_family(model, modes, options)
    check_options(model.family, options)


def _finish_nbest(batch: Decoding, row: int, nbest: NBest) -> NBest:
    """Return the first `options.nbest` hypotheses of utterance `row`.

    With `options.token_times`, they have the frames of their tokens.
    """
    nbest = nbest[: batch.options.nbest]
    model = batch.model
    has_untrained_ctc = model.ctc_weight == 0 and model.attention_weight > 0
    if not batch.options.token_times or has_untrained_ctc:
        return nbest

    log_probs = batch.ctc_log_probs[row, : batch.lengths[row]]
    return [_add_token_times(hypothesis, log_probs, model.blank) for hypothesis in nbest]


def _add_token_times(hypothesis: Hypothesis, log_probs: torch.Tensor, blank: int) -> Hypothesis:
    """Add frame and confidence of each token to a hypothesis.

    Args:
        log_probs: (T', V) CTC log-probabilities of its utterance.
    """
    if hypothesis.frames is not None:
        return hypothesis

    aligned = align_tokens(log_probs, hypothesis.tokens, blank)
    if aligned is None:
        return hypothesis

    path, _ = aligned
    return replace(hypothesis, frames=path.peaks, confidences=tuple(map(math.exp, path.scores)))


class TokenRules(Protocol):
    """Rules for the tokens that may follow, and their meaning in the result."""

    def apply(self, log_probs: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        """Set log-probabilities of next tokens that may not follow to -inf.

        Args:
            log_probs: (B, K, V) of the next token of K hypotheses.
            history: (B, K, U) their tokens after the prompt.
        """
        ...

    def finish(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return the hypothesis with only text among its tokens."""
        ...


@dataclass(frozen=True)
class Prompts:
    """The first tokens of each utterance of a batch."""

    tokens: torch.Tensor
    """(B, P)."""
    languages: tuple[str, ...] = ()
    """Of each utterance: given or detected; empty if the model has no prompt."""
    rules: TokenRules | None = None
    """Rules for the tokens after the prompt, if there are any."""


class Decoding(Generic[AnyModel]):
    """One batch in several modes.

    What modes share is computed once, when the first of them needs it.
    """

    def __init__(
        self,
        model: AnyModel,
        encoded: tuple[torch.Tensor, torch.Tensor],
        options: DecodeOptions,
        scorers: Sequence[PrefixScorer] = (),
    ) -> None:
        """`encoded`: encoder frames (B, T', D) and lengths (B,)."""
        self.model, self.options, self.scorers = model, options, scorers
        self.encoder_out, self.lengths = encoded
        self._results: dict[Callable[..., Any], Any] = {}

    @cached_property
    def ctc_log_probs(self) -> torch.Tensor:
        """CTC log-probabilities (B, T', V)."""
        return self.model.ctc_log_probs(self.encoder_out, self.options.blank_penalty)

    @cached_property
    def prompts(self) -> Prompts:
        """The tokens with which the decoder starts."""
        prompts_of = self.model.family.decoding.prompts
        return prompts_of(self.model, self.encoder_out, self.lengths, self.options)

    @cached_property
    def ctc_prefixes(self) -> list[NBest]:
        """The hypotheses of CTC prefix beam search."""
        return ctc_prefix_beam_search(
            self.ctc_log_probs, self.lengths, self.options.beam_size, self.model.blank, self.scorers
        )

    def once(self, compute: Callable[[Decoding[AnyModel]], Result]) -> Result:
        """Return `compute(batch)`, which runs once for all modes that need its result."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        return self._results[compute]

    @property
    def silent(self) -> set[int]:
        """Labels that are no text."""
        return {self.model.blank, self.model.sos, self.model.eos}


def encode_in_chunks(
    model: DecodingModel, feats: torch.Tensor, feats_lengths: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode features (B, T, F) of lengths (B,) with full context or in chunks.

    See ASRModel.encode.
    """
    return model.encode(
        feats,
        feats_lengths,
        options.decoding_chunk_size,
        options.num_decoding_left_chunks,
        options.simulate_streaming,
    )


def sos_prompts(
    model: DecodingModel, encoder_out: torch.Tensor, lengths: torch.Tensor, options: DecodeOptions
) -> Prompts:
    """Start every utterance of a batch with sos; see DecodingRules.prompts."""
    return Prompts(torch.full((len(lengths), 1), model.sos, device=encoder_out.device))
