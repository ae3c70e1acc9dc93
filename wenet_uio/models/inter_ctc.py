"""CTC after blocks in the middle of the encoder, and self-conditioning on its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from wenet_uio.models.ctc import CTC

NO_CHUNKS = "interctc_conditioning feeds predictions between blocks, which chunks with caches do not; train without it"


class Intermediate(NamedTuple):
    """Frames after a block, normalised like the frames that leave the encoder."""

    frames: torch.Tensor
    """(B, T', D)."""
    lengths: torch.Tensor
    """(B,)."""


class InterCtc:
    """What an encoder does after some of its blocks.

    Training collects the frames there for a CTC loss (Lee and Watanabe 2021,
    https://arxiv.org/abs/2102.03216). With self-conditioning, the next block also sees the CTC
    posteriors of these frames (Nozaki and Komatsu 2021, https://arxiv.org/abs/2104.02724), in
    training and in decoding.

    This is no module: `ctc` belongs to the model, and `conditioning` to the encoder.
    """

    def __init__(self, blocks: Sequence[int], ctc: CTC, conditioning: nn.Linear | None) -> None:
        """Act after `blocks` (from 1)."""
        self.blocks, self.ctc, self.conditioning = tuple(blocks), ctc, conditioning

    def condition(self, frames: torch.Tensor) -> torch.Tensor:
        """Project the CTC posteriors of frames (B, T', D), to be added to the next block's input."""
        assert self.conditioning is not None, "the caller looks at `conditioning`"
        return self.conditioning(self.ctc.ctc_lo(frames).softmax(dim=2))

    def loss(
        self, between: Sequence[Intermediate], target: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean CTC loss of the blocks, 0-d; the labels as in CTC.forward."""
        assert len(between) == len(self.blocks), "LayeredEncoder._block collects after every block"
        return torch.stack([self.ctc(*frames, target, target_lengths) for frames in between]).mean()
