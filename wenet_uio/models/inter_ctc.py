"""CTC after blocks in the middle of the encoder, and self-conditioning on its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from wenet_uio.models.ctc import CTC
from wenet_uio.models.lengths import reduced

if TYPE_CHECKING:
    from wenet_uio.models.encoder import Encoder

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
        self._collected: list[Intermediate] | None = None

    @contextmanager
    def collecting(self) -> Iterator[list[Intermediate]]:
        """A list that receives the frames after each of the blocks, while the encoder runs in this
        context.
        """
        self._collected = collected = []
        try:
            yield collected
        finally:
            self._collected = None

    def use_lengths(self, encoder: Encoder, lengths: torch.Tensor) -> None:
        """Replace the lengths of what was collected by those that follow from `lengths` (B,) of the
        input layer.

        The CTC loss needs lengths on the CPU, where these are: it does not wait for the device.
        """
        if self._collected is not None:
            factors = [encoder.reductions[block - 1] for block in self.blocks]
            pairs = zip(self._collected, factors, strict=True)
            self._collected[:] = [
                output._replace(lengths=reduced(lengths, factor, output.frames.size(1)))
                for output, factor in pairs
            ]

    def loss(
        self, collected: Sequence[Intermediate], target: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean CTC loss of the blocks, 0-d; the labels as in CTC.forward."""
        assert len(collected) == len(self.blocks), "Encoder._block calls `after` for every layer"
        return torch.stack(
            [self.ctc(*frames, target, target_lengths) for frames in collected]
        ).mean()

    def after(
        self, encoder: Encoder, place: int, x: torch.Tensor, padded: torch.Tensor
    ) -> torch.Tensor:
        """Act on the output of a layer.

        Args:
            encoder: the encoder.
            place: number of the layer, from 0.
            x: (B, T', D).
            padded: (B, T, 1), True where the input of the layer is padding.

        Returns:
            The input of the next layer: x, with self-conditioning plus a projection of its CTC
                posteriors.
        """
        if place + 1 not in self.blocks or (self._collected is None and self.conditioning is None):
            return x

        frames = encoder.after_norm(x) if encoder.normalize_before else x
        if self._collected is not None:
            lengths = (~padded[:, :: encoder.strides[place]]).sum(dim=(1, 2))
            self._collected.append(Intermediate(frames, lengths))
        if self.conditioning is None:
            return x

        return x + self.conditioning(self.ctc.ctc_lo(frames).softmax(dim=2))
