"""Efficient Conformer: blocks that lower the frame rate, and attention over groups of frames.

With a chunk mask, a group sees the chunks that its first frame sees. So streaming equals one pass
for chunks that end with a group and with a frame of the lowest rate: multiples of
`EncoderTraits.chunk_unit`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from operator import mul

import torch
from torch import nn
from torch.nn.functional import avg_pool1d, pad

from wenet_uio.addons.encoders.efficient.conf import EfficientConformerEncoderConf
from wenet_uio.models.attention import RelPositionMultiHeadedAttention
from wenet_uio.models.caches import frames_to_forget
from wenet_uio.models.convolution import ConvolutionModule
from wenet_uio.models.ctc import Intermediate
from wenet_uio.models.dropout import attended
from wenet_uio.models.encoder_traits import SEES_FUTURE, traits_of
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf
from wenet_uio.models.encoders.conformer.encoder import ConformerEncoderLayer
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.masks import additive
from wenet_uio.models.subsampling import input_layer


class GroupedRelPositionMultiHeadedAttention(RelPositionMultiHeadedAttention):
    """Relative attention in which `group` neighbouring frames are one query, and one key with its
    value.

    The frames of a group stand side by side and are cut into heads again, so a head is `group`
    times as wide.
    """

    def __init__(
        self, dim: int, dropout_rate: float, conf: ConformerEncoderConf, group: int
    ) -> None:
        super().__init__(dim, dropout_rate, conf)
        self.group = group
        self.masks_padding = True
        self.pos_bias_u = nn.Parameter(torch.empty(self.heads, group * self.head_dim))
        self.pos_bias_v = nn.Parameter(torch.empty(self.heads, group * self.head_dim))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    def join(self, x: torch.Tensor, padded: torch.Tensor | None) -> torch.Tensor:
        """Join frames (B, T, D) to groups (B, H, ceil(T / group), group * d); zeros fill the last
        group of an utterance.
        """
        if padded is not None and self.masks_padding:
            x = x.masked_fill(padded, 0.0)
        groups = (x.size(1) + self.group - 1) // self.group
        x = pad(x, (0, 0, 0, groups * self.group - x.size(1)))
        return x.view(x.size(0), groups, self.heads, self.group * self.head_dim).transpose(1, 2)

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
        padded: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See MultiHeadedAttention.forward. A group sees what its first frame sees.

        Args:
            padded: (B, T, 1) bool, True where x is padding; None: no padding.
        """
        key, value, present = self.remember(x, past)
        position = self.join(self.linear_pos(pos_emb), padded)
        scale = (self.group * self.head_dim) ** -0.5
        shift = torch.matmul(position, (self.pos_bias_v - self.pos_bias_u).unsqueeze(2)) * scale
        position_bias = shift.transpose(2, 3)  # (1 or B, H, 1, K)
        if bias is not None:
            position_bias = position_bias + bias[:, :, :: self.group, :: self.group]

        heads = attended(
            self.join(self.linear_q(x), padded) + self.pos_bias_u.unsqueeze(1),
            self.join(key.transpose(1, 2).flatten(2), padded) + position,
            self.join(value.transpose(1, 2).flatten(2), padded),
            position_bias,
            self.dropout_rate if self.training else 0.0,
        )
        frames = heads.transpose(1, 2).reshape(x.size(0), -1, x.size(2))
        return self.linear_out(frames[:, : x.size(1)]), present


class EfficientConformerLayer(ConformerEncoderLayer):
    """A conformer layer whose attention may join frames to groups, and whose convolution may have a
    stride.
    """

    def __init__(self, conf: ConformerEncoderConf, stride: int, group: int) -> None:
        super().__init__(conf)
        self.stride = stride
        self.masks_padding = True

        if group > 1:
            self.self_attn = GroupedRelPositionMultiHeadedAttention(
                conf.output_size, conf.attention_dropout_rate, conf, group
            )

        if stride > 1:
            self.conv_module = ConvolutionModule(conf, stride)
            # WeNet's checkpoints have this layer; it is not used.
            self.concat_linear = nn.Linear(2 * conf.output_size, conf.output_size).requires_grad_(
                False
            )

    def attend(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor | None,
        att_past: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply self-attention to x (B, T, D), with groups cut at the padding; return the past too."""
        return self.self_attn(x, bias, pos_emb, att_past, padded)

    def convolve(
        self, x: torch.Tensor, padded: torch.Tensor | None, cnn_past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ConformerEncoderLayer.convolve; with a stride, the means of the input frames are
        added.
        """
        assert self.conv_module is not None
        assert self.norm_conv is not None
        convolved, present = self.conv_module(
            self.norm_conv(x) if self.normalize_before else x, padded, cnn_past
        )
        if padded is not None:
            convolved = convolved.masked_fill(padded[:, :: self.stride], 0.0)
        if self.stride > 1:
            x = self.shorten(x, padded)

        x = x + self.dropout(convolved)
        return x if self.normalize_before else self.norm_conv(x), present

    def shorten(self, x: torch.Tensor, padded: torch.Tensor | None) -> torch.Tensor:
        """Means of each `stride` frames of x (B, T, D) -> (B, ceil(T / stride), D).

        The last mean of an utterance may be over fewer frames.
        """
        if padded is None or not self.masks_padding:
            return _means(x, self.stride)
        share = _means((~padded).to(x.dtype), self.stride)
        return _means(x.masked_fill(padded, 0.0), self.stride) / share.clamp(min=1.0 / self.stride)


def _means(x: torch.Tensor, stride: int) -> torch.Tensor:
    """Means of each `stride` frames of x (B, T, D), of those that exist -> (B, ceil(T / stride),
    D).
    """
    return avg_pool1d(x.transpose(1, 2), stride, ceil_mode=True, count_include_pad=False).transpose(
        1, 2
    )


class EfficientConformerEncoder(LayeredEncoder):
    """Efficient Conformer (Burchi and Vielzeuf 2021, https://arxiv.org/abs/2109.01163)."""

    def __init__(
        self,
        input_size: int,
        conf: EfficientConformerEncoderConf,
        global_cmvn: nn.Module | None = None,
    ) -> None:
        blocks = [conf.block(place) for place in range(conf.num_blocks)]
        layers: list[nn.Module] = [
            EfficientConformerLayer(block, stride, group)
            for block, stride, group in zip(blocks, conf.strides, conf.groups, strict=True)
        ]
        embed = input_layer(input_size, blocks[0])
        reductions = list(accumulate(conf.strides, mul))
        left_frames = [block.cnn_module_kernel - 1 if conf.causal else 0 for block in blocks]
        traits = replace(
            traits_of(blocks[0]),
            cnn_cache_frames=left_frames[0],
            reduction=reductions[-1],
            chunk_divisor=reductions[-1],
            chunk_unit=conf.chunk_unit,
            batches_chunks=False,  # layers at a lower rate keep fewer frames
            obstacle=embed.obstacle if conf.causal else SEES_FUTURE,
        )
        super().__init__(embed, blocks[0], traits, layers, global_cmvn, conf.normalize_before)
        self.strides = list(conf.strides)
        self.reductions = reductions
        # TorchScript reads numbers of a module, but not its traits.
        self.reduction = reductions[-1]
        self.left_frames = left_frames

    @torch.jit.unused
    def _blocks(
        self,
        x: torch.Tensor,
        bias: torch.Tensor,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
        between: list[Intermediate] | None,
    ) -> torch.Tensor:
        """Apply all layers to frames x (B, T, D); each layer may lower the frame rate."""
        for place, stride in enumerate(self.strides):
            x = self._block(place, x, bias, pos_emb, padded, between)
            # What the next layer needs, at its frame rate.
            bias = bias[:, :, ::stride, ::stride]
            pos_emb, padded = pos_emb[:, ::stride], padded[:, ::stride]

        return self.after_norm(x) if self.normalize_before else x

    @torch.jit.export
    def forward_chunk(
        self,
        xs: torch.Tensor,
        offset: int,
        required_cache_size: int,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
        att_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See Encoder.forward_chunk. Sizes are frames of the input layer, but `offset` counts
        encoder frames.

        A layer at a lower rate uses every `factor`-th frame of its attention cache, which has each
        frame `factor` times, and the last frames of its convolution cache.
        """
        x, pos_emb, att_cache, cnn_cache = self._begin_chunk(
            xs, offset * self.reduction, att_cache, cnn_cache
        )
        seen = pos_emb.size(1)
        forget = frames_to_forget(seen, required_cache_size)
        bias: torch.Tensor | None = None
        if att_mask is not None:
            bias = additive(att_mask[:, :, :seen], x.dtype)

        att_pasts: list[torch.Tensor] = []
        cnn_pasts: list[torch.Tensor] = []
        factor = 1

        for i, layer in enumerate(self.encoders):
            # Convolution caches have the size of the first layer, whose kernel is the largest.
            unused = self.left_frames[0] - self.left_frames[i]
            x, att_past, cnn_past = layer(
                x,
                bias,
                pos_emb,
                None,
                att_cache[i : i + 1, :, ::factor],
                cnn_cache[i, :, :, unused:],
            )
            if att_past is not None and cnn_past is not None:
                # Back to the size of the cache: each frame `factor` times.
                repeated = att_past[:, :, forget // factor :].repeat_interleave(factor, dim=2)
                att_pasts.append(repeated[:, :, repeated.size(2) - (seen - forget) :])
                cnn_pasts.append(pad(cnn_past, (unused, 0)))

            stride = self.strides[i]
            factor, pos_emb = factor * stride, pos_emb[:, ::stride]
            if bias is not None:
                bias = bias[:, :, :, ::stride]

        if self.normalize_before:
            x = self.after_norm(x)

        return x, torch.cat(att_pasts), torch.stack(cnn_pasts)
