"""How the attention decoder starts: the first tokens, and rules for the tokens after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.types import DecodeOptions, Hypothesis


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


def sos_prompts(
    model: DecodingModel, encoder_out: torch.Tensor, lengths: torch.Tensor, options: DecodeOptions
) -> Prompts:
    """Start every utterance of a batch with sos; see Family.prompts."""
    return Prompts(torch.full((len(lengths), 1), model.sos, device=encoder_out.device))
