"""Caches of a stream of a Zipformer: those of all layers and of the input layer, as two tensors."""

from __future__ import annotations

import math

import torch
from torch import nn

from wenet_uio.addons.encoders.zipformer.conf import ZipformerEncoderConf


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
        caches_of_stacks: list[list[torch.Tensor]] = []
        att_begin, cnn_begin = 0, self.edge

        # A layer has four caches of attention, then two of convolutions.
        for i, factor in enumerate(self.factors):
            caches: list[torch.Tensor] = []
            for _ in range(self.counts[i]):
                for width in self.widths[i]:
                    end = att_begin + self.chunk_unit // factor * width
                    cache = att_cache[:, 0, :, att_begin:end]
                    caches.append(cache.reshape(att_cache.size(0), -1, width))
                    att_begin = end
                for _ in range(2):
                    end = cnn_begin + self.dims[i] * self.pasts[i]
                    cache = past[:, cnn_begin:end]
                    caches.append(cache.view(past.size(0), self.dims[i], self.pasts[i]))
                    cnn_begin = end

            caches_of_stacks.append(caches)

        return past[:, : self.edge].view(-1, channels, frames, bins), caches_of_stacks

    def joined(
        self, presents: list[list[torch.Tensor]], after: torch.Tensor, keep: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return caches of all stacks as two tensors: `keep` frames of attention, and all of
        convolutions after `after`.
        """
        rows, pasts = [torch.empty(0)] * 0, [after]
        for i, caches in enumerate(presents):
            for place, cache in enumerate(caches):
                if place % 6 > 3:  # the last two of the six caches of a layer are of convolutions
                    pasts.append(cache.flatten(1))
                    continue

                num_frames = cache.size(1)
                num_kept = num_frames if keep < 0 else min(num_frames, keep // self.factors[i])
                cache = cache[:, num_frames - num_kept :]
                units = num_kept * self.factors[i] // self.chunk_unit
                rows.append(
                    cache.reshape(
                        cache.size(0), 1, units, self.chunk_unit // self.factors[i] * cache.size(2)
                    )
                )

        return torch.cat(rows, dim=3), torch.cat(pasts, dim=1)[:, None, None]
