"""Caches of streams that are encoded chunk by chunk; chunks of several streams as one batch, whose
caches are joined and parted afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wenet_uio.models.encoder_traits import EncoderTraits
from wenet_uio.models.masks import additive
from wenet_uio.models.subsampling import Subsampling

Caches = tuple[torch.Tensor, torch.Tensor]
"""att_cache and cnn_cache of a stream, see Encoder.forward_chunk."""


def frames_to_forget(seen: int, required_cache_size: int) -> int:
    """Return the number of the oldest of `seen` frames to drop before the next chunk; 0 if
    `required_cache_size` is negative.
    """
    return 0 if required_cache_size < 0 else max(seen - required_cache_size, 0)


@dataclass(frozen=True)
class JoinedChunks:
    """What the layers need beside the frames (B, T', D) of a chunk of each of B streams.

    Shorter caches begin with zeros, which the bias hides. C is the length of the longest cache, and
    K = C + T'.
    """

    pos_emb: torch.Tensor
    """(B, K, ...) position encodings of caches and chunks."""
    bias: torch.Tensor | None
    """(B, 1, 1, K), added to the attention scores; None: all caches have C frames."""
    att_cache: torch.Tensor
    """(layers, B, H, C, 2 D / H)."""
    cnn_cache: torch.Tensor
    """(layers, B, D, cnn_cache_frames)."""
    cached: Sequence[int]
    """(B,) frames in the cache of each stream."""

    def part(
        self,
        att_pasts: Sequence[torch.Tensor] | torch.Tensor,
        cnn_pasts: Sequence[torch.Tensor] | torch.Tensor,
        keep: Sequence[int],
    ) -> list[Caches]:
        """Return the caches of each stream for its next chunk, without frames that were hidden.

        Args:
            att_pasts: (B, H, K, 2 D / H) of each layer.
            cnn_pasts: (B, D, cnn_cache_frames) of each layer.
            keep: (B,) `required_cache_size` of each stream.
        """
        longest, all_frames = self.att_cache.size(3), self.pos_emb.size(1)
        caches: list[Caches] = []
        for row, frames in enumerate(self.cached):
            # The cache of this stream begins behind the zeros that fill it up to the longest one.
            hidden = longest - frames
            first = hidden + frames_to_forget(all_frames - hidden, keep[row])
            att_cache = torch.stack([past[row, :, first:] for past in att_pasts])
            cnn_cache = torch.stack([past[row : row + 1] for past in cnn_pasts])
            caches.append((att_cache, cnn_cache))

        return caches


def join_chunks(
    embed: Subsampling,
    traits: EncoderTraits,
    like: torch.Tensor,
    offsets: Sequence[int],
    caches: Sequence[Caches],
) -> JoinedChunks:
    """Join the chunks of B streams.

    Args:
        like: (B, T', ...) with the frames, dtype and device of the input of the layers.
        offsets: (B,) encoder frames of each stream before its chunk.
        caches: of each stream, see Encoder.forward_chunk; their lengths may differ.
    """
    frames = like.size(1)
    cached = [att_cache.size(2) for att_cache, _ in caches]
    longest = max(cached)
    places = longest + frames  # K = C + T'
    positions = [embed.position_encoding(offset - longest, places, like) for offset in offsets]
    bias: torch.Tensor | None = None
    if min(cached) < longest:
        # The last `lengths` of the K places of a stream hold frames.
        lengths = torch.tensor(cached, device=like.device).unsqueeze(1) + frames  # (B, 1)
        has_frame = torch.arange(places, device=like.device) >= places - lengths  # (B, K)
        bias = additive(has_frame.unsqueeze(1), like.dtype)

    heads, width = traits.att_cache_shape
    att_cache = like.new_zeros(traits.layers, len(caches), heads, longest, width)
    cnn_cache = like.new_zeros(traits.layers, len(caches), *traits.cnn_cache_shape)
    for row, (att, cnn) in enumerate(caches):
        if att.size(2):
            att_cache[:, row, :, longest - att.size(2) :] = att
        if cnn.size(0):
            cnn_cache[:, row] = cnn[:, 0]

    return JoinedChunks(torch.cat(positions), bias, att_cache, cnn_cache, cached)
