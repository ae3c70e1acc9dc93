"""Caches of a stream of a Zipformer: those of all layers and of the input layer, as two tensors."""

from __future__ import annotations

import math

import torch
from torch import nn

from wenet_uio.models.encoders.zipformer.conf import ZipformerEncoderConf


class CacheLayout(nn.Module):
    """Packs the caches of a stream.

    Attention: (B, 1, C / chunk_unit, …), the frames of all layers in units of `chunk_unit` frames
    of the input layer. Convolutions: (B, 1, 1, …), past frames of the input layer and of all
    layers.
    """

    def __init__(self, conf: ZipformerEncoderConf, edge: tuple[int, int, int]) -> None:
        """Describe the caches; `edge`: shape of the past of the input layer (channels, frames,
        bins).
        """
        super().__init__()
        self.chunk_unit = conf.chunk_unit
        self.edge_shape, self.edge = edge, math.prod(edge)
        self.factors = [stack.downsampling_factor for stack in conf.stacks]
        self.dims = [stack.encoder_dim for stack in conf.stacks]
        self.counts = [stack.num_encoder_layers for stack in conf.stacks]
        self.pasts = [stack.cnn_module_kernel // 2 for stack in conf.stacks]
        self.widths = [
            [
                stack.num_heads * stack.query_head_dim,
                stack.encoder_dim * 3 // 4,
                stack.num_heads * stack.value_head_dim,
                stack.num_heads * stack.value_head_dim,
            ]
            for stack in conf.stacks
        ]
        """Widths of the first four caches of a layer, see ZipformerLayer.forward."""

    def started(
        self, caches: tuple[torch.Tensor, torch.Tensor], like: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the caches; those at the start of an utterance have no frames, and zeros as the
        past of convolutions.
        """
        if caches[1].size(0) > 0:
            return caches

        att, cnn = 0, self.edge
        for i, count in enumerate(self.counts):
            att += count * sum(self.widths[i]) * (self.chunk_unit // self.factors[i])
            cnn += count * 2 * self.dims[i] * self.pasts[i]

        return like.new_zeros(like.size(0), 1, 0, att), like.new_zeros(like.size(0), 1, 1, cnn)

    def split(
        self, att_cache: torch.Tensor, cnn_cache: torch.Tensor
    ) -> tuple[torch.Tensor, list[list[torch.Tensor]]]:
        """Return the past of the input layer (B, channels, frames, bins), and the caches of each
        stack.
        """
        past = cnn_cache[:, 0, 0]
        channels, frames, bins = self.edge_shape
        by_layer: list[list[torch.Tensor]] = []
        at, begin = 0, self.edge

        for i, factor in enumerate(self.factors):
            caches: list[torch.Tensor] = []
            for _ in range(self.counts[i]):
                for width in self.widths[i]:
                    end = at + self.chunk_unit // factor * width
                    caches.append(att_cache[:, 0, :, at:end].reshape(att_cache.size(0), -1, width))
                    at = end
                for _ in range(2):
                    end = begin + self.dims[i] * self.pasts[i]
                    caches.append(
                        past[:, begin:end].view(past.size(0), self.dims[i], self.pasts[i])
                    )
                    begin = end

            by_layer.append(caches)

        return past[:, : self.edge].view(-1, channels, frames, bins), by_layer

    def joined(
        self, presents: list[list[torch.Tensor]], after: torch.Tensor, keep: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return caches of all stacks as two tensors: `keep` frames of attention, and all of
        convolutions after `after`.
        """
        rows, pasts = [torch.empty(0)] * 0, [after]
        for i, caches in enumerate(presents):
            for place, cache in enumerate(caches):
                if place % 6 > 3:
                    pasts.append(cache.flatten(1))
                    continue

                seen = cache.size(1)
                kept = seen if keep < 0 else min(seen, keep // self.factors[i])
                cache = cache[:, seen - kept :]
                units = kept * self.factors[i] // self.chunk_unit
                rows.append(
                    cache.reshape(
                        cache.size(0), 1, units, self.chunk_unit // self.factors[i] * cache.size(2)
                    )
                )

        return torch.cat(rows, dim=3), torch.cat(pasts, dim=1)[:, None, None]
