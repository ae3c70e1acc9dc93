"""The interface of an encoder: features -> encoder frames, for a batch or chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from wenet_uio.models.caches import Caches
from wenet_uio.models.ctc import InterCtc
from wenet_uio.models.encoder_traits import EncoderTraits
from wenet_uio.models.subsampling import Subsampling


class Encoder(nn.Module):
    """Global CMVN, an input layer, and layers. LayeredEncoder is the usual one.

    `traits`: what searches, exports and other models ask. `inter_ctc`: what happens after some of
    the blocks; None: nothing. `masks_padding`: the frames of an utterance do not depend on its
    batch; False: as in WeNet, they may. `trains_on_padding`: regularisers of training count padded
    frames too, so that more padding changes the gradients.
    """

    trains_on_padding = False
    inter_ctc = cast("InterCtc | None", None)  # TorchScript reads annotations of a class

    def __init__(
        self, embed: Subsampling, traits: EncoderTraits, global_cmvn: nn.Module | None
    ) -> None:
        super().__init__()
        self.global_cmvn = global_cmvn
        self.embed = embed
        self.traits = traits
        self.masks_padding = True

    @torch.jit.unused
    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        chunk_size: int = -1,
        num_left_chunks: int = -1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode a batch.

        In training, a model with dynamic chunks draws chunk size and left chunks and ignores the
        arguments.

        Args:
            feats: (B, T, F), padded.
            feats_lengths: (B,) frames.
            chunk_size: frames of the input layer in a chunk; negative: full context; ALL_FRAMES: in
                training too.
            num_left_chunks: chunks seen before the current chunk; negative: all.

        Returns:
            Encoder frames (B, T', D), zeros beyond the lengths, and lengths (B,).
        """
        raise NotImplementedError

    def forward_chunk(
        self,
        xs: torch.Tensor,
        offset: int,
        required_cache_size: int,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
        att_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode one chunk of one utterance.

        Args:
            xs: (1, T, F); T = (chunk - 1) * subsampling_rate + right_context + 1 frames give
                `chunk` encoder frames.
            offset: number of encoder frames before this chunk.
            required_cache_size: encoder frames to keep for the next chunk; negative: all, 0: none.
            att_cache: (layers, H, C, 2 D / H) keys and values of the C frames before; (0, 0, 0, 0)
                at the start.
            cnn_cache: (layers, 1, D, cnn_cache_frames) past input of the convolutions; a conformer
                keeps kernel - 1 frames. (0, 0, 0, 0) at the start.
            att_mask: (1, 1, C + chunk or more) bool, False for entries of att_cache that hold no
                frame yet. Runtimes whose cache has a fixed size need this mask at the start of an
                utterance. None: all entries hold frames.

        Returns:
            Encoder frames (1, chunk, D), and both caches for the next chunk.
        """
        raise NotImplementedError

    @torch.jit.unused
    def forward_chunks(
        self,
        xs: torch.Tensor,
        offsets: Sequence[int],
        caches: Sequence[Caches],
        keep: Sequence[int],
    ) -> tuple[torch.Tensor, list[Caches]]:
        """Encode one chunk of each of B streams together; equals `forward_chunk` of each.

        Args:
            xs: (B, T, F).
            offsets: (B,) encoder frames of each stream before its chunk.
            caches: of each stream, as forward_chunk returns them; their lengths may differ.
            keep: (B,) `required_cache_size` of each stream.

        Returns:
            Encoder frames (B, chunk, D), and the caches of each stream for its next chunk.
        """
        raise NotImplementedError
