"""One batch of utterances on its way from encoder frames to hypotheses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch

from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.prompts import Prompts
from wenet_uio.search.types import DecodeOptions, NBest

AnyModel = TypeVar("AnyModel", bound=DecodingModel, covariant=True)
Result = TypeVar("Result")


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
        prompts_of = self.model.family.prompts
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
