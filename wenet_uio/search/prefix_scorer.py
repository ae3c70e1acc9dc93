"""Interface of hot words and language models: bonuses for the token sequences of beam searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class PrefixScorer(Protocol):
    """Give every token sequence a bonus (natural log), computed token by token.

    The state of a sequence is S integers; they are zeros for the empty sequence.
    """

    state_size: int
    """S."""
    most: float
    """Largest growth of the bonus by one token."""

    def begin(self) -> PrefixScorer:
        """Return the scorer for a new search; several searches may share one.

        States belong to the scorer that made them.
        """
        ...

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append each of K tokens to each of N sequences.

        Args:
            states: (B, N, S) int64.
            tokens: (B, K).
            wanted: (B, N, K) bool; results for other extensions are not used.

        Returns:
            States (B, N, K, S) of the longer sequences, and the growth of the bonus (B, N, K)
            float64.
        """
        ...

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """Compute the growth of the bonus (B, N) at the end of sequences with states (B, N, S)."""
        ...


class Scorers:
    """Join scorers to one: bonuses are added, states are concatenated."""

    def __init__(self, scorers: Sequence[PrefixScorer]) -> None:
        self._scorers = tuple(scorers)
        self._sizes = [scorer.state_size for scorer in scorers]
        self.state_size = sum(self._sizes)
        self.most = sum(scorer.most for scorer in scorers)

    def begin(self) -> PrefixScorer:
        """As PrefixScorer.begin."""
        return Scorers([scorer.begin() for scorer in self._scorers])

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As PrefixScorer.extend."""
        next_states, gains = [], []
        own_states = states.split(self._sizes, dim=2)
        for scorer, states_of_scorer in zip(self._scorers, own_states, strict=True):
            next_states_of_scorer, gain = scorer.extend(states_of_scorer, tokens, wanted)
            next_states.append(next_states_of_scorer)
            gains.append(gain)

        return torch.cat(next_states, dim=3), torch.stack(gains).sum(dim=0)

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """As PrefixScorer.end."""
        gain = torch.zeros(states.shape[:2], dtype=torch.float64, device=states.device)
        own_states = states.split(self._sizes, dim=2)
        for scorer, states_of_scorer in zip(self._scorers, own_states, strict=True):
            gain = gain + scorer.end(states_of_scorer)
        return gain


def join_scorers(scorers: Sequence[PrefixScorer]) -> PrefixScorer | None:
    """Return one scorer with the bonuses of all; None without scorers."""
    if not scorers:
        return None
    return scorers[0] if len(scorers) == 1 else Scorers(scorers)
