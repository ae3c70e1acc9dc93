"""Squeezeformer: the layers in the middle of the stack run at half the frame rate (Kim et al.
2022).

A layer at a lower rate sees the frames whose number is a multiple of a factor. The number counts
from the start of the utterance. A chunk may have any number of such frames, also none, so streaming
with chunks of any size equals one pass.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import conv1d, linear

from wenet_uio.addons.encoders.squeezeformer.conf import SqueezeformerEncoderConf
from wenet_uio.models.attention import (
    RelPositionMultiHeadedAttention,
    ShiftedRelPositionMultiHeadedAttention,
)
from wenet_uio.models.caches import frames_to_forget
from wenet_uio.models.convolution import ConvolutionModule
from wenet_uio.models.ctc import Intermediate
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.embedding import RelPositionalEncoding
from wenet_uio.models.encoder_traits import SEES_FUTURE, traits_of
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf
from wenet_uio.models.layer_parts import ACTIVATIONS, PositionwiseFeedForward
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.masks import additive
from wenet_uio.models.subsampling import DepthwiseConv2dSubsampling4

KERNELS = {"conv1d": 5, "stream": 1}
"""{time_reduction_layer_type: kernel of the convolution that halves the rate, in frames}."""
POSITIONAL_DROPOUT_RATE = 0.1
"""A constant of WeNet's squeezeformer, not a key of its yaml."""


class SqueezeformerSubsampling(DepthwiseConv2dSubsampling4):
    """As in WeNet's squeezeformer, applies the position encoding before the projection."""

    def output_lengths(self, lengths: torch.Tensor, frames: int, padded: int) -> torch.Tensor:
        """Convert input lengths (B,) to output lengths (B,); in WeNet all windows that begin in the
        utterance count, ceil(L / 4), also those that end in the padding.
        """
        if self.masks_padding:
            return super().output_lengths(lengths, frames, padded)
        windows = torch.div(lengths + 3, 4, rounding_mode="floor").clamp(max=frames)
        return windows.masked_fill(lengths <= self.right_context, 0)

    def forward(self, x: torch.Tensor, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Embed features x (B, T, F) -> (B, T', D), position encodings (1, T', D)."""
        x, positions = self.pos_enc(self.convolve(x), offset)
        return self.input_proj(x), positions


class _ScaledInput(nn.Module):
    """A module with a learned scale and bias for its input. The weights have the names of WeNet's
    checkpoints.
    """

    def add_scale(self, dim: int, trained: bool) -> None:
        """Create the weights; if they are not trained, `scale` does nothing."""
        self.scales = trained
        self.ada_scale = nn.Parameter(torch.ones(1, 1, dim), requires_grad=trained)
        self.ada_bias = nn.Parameter(torch.zeros(1, 1, dim), requires_grad=trained)

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return self.ada_scale * x + self.ada_bias if self.scales else x


class _Attention(RelPositionMultiHeadedAttention, _ScaledInput):
    pass


class _ShiftedAttention(ShiftedRelPositionMultiHeadedAttention, _ScaledInput):
    pass


class _FeedForward(PositionwiseFeedForward, _ScaledInput):
    pass


class _Convolution(ConvolutionModule, _ScaledInput):
    pass


class TimeReduction(nn.Module):
    """Halves the frame rate by a depthwise convolution of stride 2 and a pointwise convolution."""

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.dw_conv = nn.Conv1d(dim, dim, kernel, stride=2, padding=max(kernel - 2, 0), groups=dim)
        self.pw_conv = nn.Conv1d(dim, dim, 1)
        self.groups, self.padding = dim, max(kernel - 2, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Halve the frame rate: (B, T, D) -> (B, ceil(T / 2), D)."""
        if x.size(1) == 0:
            return x

        half = conv1d(
            x.transpose(1, 2),
            self.dw_conv.weight,
            self.dw_conv.bias,
            2,
            self.padding,
            1,
            self.groups,
        )
        half = half.transpose(1, 2)[:, : (x.size(1) + 1) // 2]
        return linear(half, self.pw_conv.weight.squeeze(2), self.pw_conv.bias)


class SqueezeformerEncoderLayer(nn.Module):
    """Attention, feed-forward, convolution, feed-forward, each with a learned scale and bias for
    its input.

    The layer has the interface of layered_encoder.py.
    """

    def __init__(self, conf: SqueezeformerEncoderConf) -> None:
        super().__init__()
        dim, blocks = conf.encoder_dim, conf.blocks
        attention = _ShiftedAttention if conf.do_rel_shift else _Attention
        self.self_attn = attention(dim, conf.attention_dropout_rate, blocks)
        self.ffn1 = _build_feed_forward(blocks)
        self.conv_module = _Convolution(blocks)
        self.ffn2 = _build_feed_forward(blocks)
        self.layer_norm1 = nn.LayerNorm(dim)
        self.layer_norm2 = nn.LayerNorm(dim)
        self.layer_norm3 = nn.LayerNorm(dim)
        self.layer_norm4 = nn.LayerNorm(dim)
        for module in (self.self_attn, self.ffn1, self.conv_module, self.ffn2):
            module.add_scale(dim, trained=conf.adaptive_scale)

        self.dropout = Dropout(conf.dropout)
        self.normalize_before = conf.normalize_before

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor | None,
        att_past: torch.Tensor | None = None,
        cnn_past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Apply the layer to x (B, T, D), whole utterances or a chunk -> (B, T, D), and both pasts
        for the next chunk; layered_encoder.py has the shapes.
        """
        before = self.normalize_before
        scaled = self.self_attn.scale(self.layer_norm1(x) if before else x)
        attended, att_present = self.self_attn(scaled, bias, pos_emb, att_past, padded)
        x = x + self.dropout(attended)
        if not before:
            x = self.layer_norm1(x)

        scaled = self.ffn1.scale(self.layer_norm2(x) if before else x)
        x = x + self.dropout(self.ffn1(scaled))
        if not before:
            x = self.layer_norm2(x)

        scaled = self.conv_module.scale(self.layer_norm3(x) if before else x)
        convolved, cnn_present = self.conv_module(scaled, padded, cnn_past)
        x = x + self.dropout(convolved)
        if not before:
            x = self.layer_norm3(x)

        scaled = self.ffn2.scale(self.layer_norm4(x) if before else x)
        x = x + self.dropout(self.ffn2(scaled))
        if not before:
            x = self.layer_norm4(x)

        return x, att_present, cnn_present


def _build_feed_forward(conf: ConformerEncoderConf) -> _FeedForward:
    activation = ACTIVATIONS[conf.activation_type]()
    return _FeedForward(conf.output_size, conf.linear_units, conf.dropout_rate, activation)


class SqueezeformerEncoder(LayeredEncoder):
    """Squeezeformer (Kim et al. 2022, https://arxiv.org/abs/2206.00888)."""

    def __init__(
        self, input_size: int, conf: SqueezeformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        dim, blocks = conf.encoder_dim, conf.blocks
        pos_enc = RelPositionalEncoding(dim, POSITIONAL_DROPOUT_RATE)
        embed = SqueezeformerSubsampling(
            input_size, dim, conf.input_dropout_rate, pos_enc, conf.dw_stride
        )
        layers: list[nn.Module] = [SqueezeformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        reduces = len(conf.reduce_before) > 0
        left_frames = conf.cnn_module_kernel - 1 if conf.causal else 0
        traits = replace(
            traits_of(blocks),
            output_size=conf.output_size,
            # The last frame is the newest output of the layer
            cnn_cache_frames=left_frames + 1,
            # Streams at different offsets have different frames at the lower rate
            batches_chunks=False,
            traced_chunk_unit=2 ** len(conf.reduce_before),
            obstacle=_streaming_obstacle(conf) or embed.obstacle,
        )
        super().__init__(embed, blocks, traits, layers, global_cmvn)
        self.after_norm = nn.Identity()
        self.preln = nn.LayerNorm(dim)
        self.reduce_before = list(conf.reduce_before)
        self.recover_before = list(conf.recover_before)
        self.reductions = list(conf.reductions)
        self.time_reduction_layer = TimeReduction(
            dim, KERNELS[conf.time_reduction_layer_type]
        ).requires_grad_(reduces)
        self.time_recover_layer = nn.Linear(dim, dim).requires_grad_(reduces)
        self.final_proj = nn.Linear(dim, conf.output_size) if conf.output_size != dim else None
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
        """Apply all layers to frames x (B, T, D); those in the middle see every second frame."""
        x = self.preln(x)
        finer: list[tuple[torch.Tensor, ...]] = []
        for place in range(len(self.encoders)):
            if place in self.reduce_before:
                finer.append((x, bias, pos_emb, padded))
                x = self.time_reduction_layer(x.masked_fill(padded, 0.0))
                bias, pos_emb, padded = bias[:, :, ::2, ::2], pos_emb[:, ::2], padded[:, ::2]
            if place in self.recover_before:
                skipped, bias, pos_emb, padded = finer.pop()
                doubled = x.repeat_interleave(2, dim=1)[:, : skipped.size(1)]
                x = (skipped + self.time_recover_layer(doubled)).masked_fill(padded, 0.0)
            x = self._block(place, x, bias, pos_emb, padded, between)

        return x if self.final_proj is None else self.final_proj(x)

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
        """See Encoder.forward_chunk. A layer at a lower rate uses every `factor`-th frame of its
        attention cache.
        """
        x, pos_emb, att_cache, cnn_cache = self._begin_chunk(xs, offset, att_cache, cnn_cache)
        x = self.preln(x)
        cached, seen = att_cache.size(2), pos_emb.size(1)

        # All layers have caches of one size, that of the full rate; a layer at a lower rate leaves
        # the other frames zero.
        att_presents = torch.zeros(
            len(self.encoders),
            self.att_cache_shape[0],
            seen,
            att_cache.size(3),
            dtype=x.dtype,
            device=x.device,
        )
        cnn_presents: list[torch.Tensor] = []
        finer: list[torch.Tensor] = []
        finer_first: list[int] = []
        factor, first = 1, offset  # first: number of the first frame of x, counted at the rate of x

        for i, layer in enumerate(self.encoders):
            if i in self.reduce_before:
                finer.append(x)
                finer_first.append(first)
                # The frames at the lower rate are those of even numbers, counted from the start of
                # the utterance.
                x = self.time_reduction_layer(x[:, first % 2 :])
                factor, first = 2 * factor, (first + 1) // 2

            if i in self.recover_before:
                before_reduction, first_before = finer.pop(), finer_first.pop()
                # Frame n of the higher rate uses frame n // 2 of the lower rate, which may be in
                # the chunk before.
                doubled = torch.cat(
                    (cnn_cache[i - 1, :, :, -1:].transpose(1, 2), x), dim=1
                ).repeat_interleave(2, dim=1)
                start = first_before - 2 * (first - 1)
                end = start + before_reduction.size(1)
                x = before_reduction + self.time_recover_layer(doubled[:, start:end])
                factor, first = factor // 2, first_before

            # Index in the cache of its first frame at this rate: the number of the frame, counted
            # from the start of the utterance, is a multiple of `factor`.
            start_at_rate = (factor - (offset - cached) % factor) % factor
            att_past = att_cache[i : i + 1, :, start_at_rate::factor]
            memory, last = cnn_cache[i, :, :, : self.left_frames], cnn_cache[i, :, :, -1:]

            if x.size(1) > 0:
                bias: torch.Tensor | None = None
                if att_mask is not None:
                    bias = additive(att_mask[:, :, start_at_rate:seen:factor], x.dtype)

                x, att_present, cnn_present = layer(
                    x, bias, pos_emb[:, start_at_rate::factor], None, att_past, memory
                )
                if att_present is not None and cnn_present is not None:
                    att_past, memory = att_present, cnn_present

                last = x[:, -1:].transpose(1, 2)

            # A chunk without a frame at this rate leaves the caches as they were.
            att_presents[i : i + 1, :, start_at_rate::factor] = att_past
            cnn_presents.append(torch.cat((memory, last), dim=2))

        if self.final_proj is not None:
            x = self.final_proj(x)

        forget = frames_to_forget(seen, required_cache_size)
        return x, att_presents[:, :, forget:], torch.stack(cnn_presents)


def _streaming_obstacle(conf: SqueezeformerEncoderConf) -> str:
    """Say why streaming differs from one pass; empty if it does not."""
    if not conf.causal:
        return SEES_FUTURE
    if conf.do_rel_shift:
        return (
            "do_rel_shift counts positions from the end of the utterance; "
            "train with do_rel_shift: false"
        )
    if conf.reduce_before and conf.time_reduction_layer_type != "stream":
        return "time_reduction_layer_type conv1d sees future frames; train with stream"
    return ""
