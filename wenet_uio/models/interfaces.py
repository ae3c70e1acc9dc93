"""Interfaces that attention rescoring needs. ASRModel and exported models implement them."""

from __future__ import annotations

from typing import Protocol

import torch


class ScoringDecoder(Protocol):
    """A decoder that scores given hypotheses."""

    bidirectional: bool
    """Whether it can score right to left too."""

    def __call__(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
        r_ys_in_pad: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See TransformerDecoder.forward."""
        ...


class RescoringModel(Protocol):
    """A model whose decoder can rescore hypotheses."""

    sos: int
    eos: int

    @property
    def decoder(self) -> ScoringDecoder:
        """The decoder that scores the hypotheses."""
        ...
