"""Branchformer and E-Branchformer: every block has an attention branch and a convolution branch
(cgMLP).

The layers have the interface of layered_encoder.py.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.addons.encoders.branchformer.conf import (
    BranchEncoderConf,
    BranchformerEncoderConf,
    EBranchformerEncoderConf,
)
from wenet_uio.models.attention import self_attention
from wenet_uio.models.convolution import DepthwiseConv
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.encoder_traits import SEES_FUTURE, traits_of
from wenet_uio.models.layer_parts import ACTIVATIONS, build_feed_forward
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.subsampling import input_layer


class ConvolutionalGate(nn.Module):
    """Applies a convolution over time to one half of the channels, then multiplies the other half
    by the result.
    """

    def __init__(self, conf: BranchEncoderConf) -> None:
        super().__init__()
        half = conf.cgmlp_linear_units // 2
        self.norm = nn.LayerNorm(half)
        self.conv = DepthwiseConv(half, conf.cgmlp_conv_kernel, conf.causal)
        self.linear = nn.Linear(half, half) if conf.use_linear_after_conv else None
        self.act = (
            nn.Identity()
            if conf.gate_activation == "identity"
            else ACTIVATIONS[conf.gate_activation]()
        )
        self.dropout = Dropout(conf.dropout_rate)

    def forward(
        self, x: torch.Tensor, padded: torch.Tensor | None, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gate one half of x (B, T, 2 C) by the other -> (B, T, C), and the next `past`. padded (B,
        T, 1), past (B, C, left_frames) or None.
        """
        gated, gate = x.chunk(2, dim=2)
        # As in WeNet, the norm also applies to the zeros before the first frame: they become the
        # bias of the norm.
        gate, present = self.conv.remember(gate, past)
        gate = self.conv(self.norm(gate), padded)
        if self.linear is not None:
            gate = self.linear(gate)

        return self.dropout(gated * self.act(gate)), present


class ConvolutionalGatingMLP(nn.Module):
    """Linear layer to more channels, activation, gate, linear layer back to the width of the
    encoder (cgMLP, Sakuma et al. 2022).
    """

    def __init__(self, conf: BranchEncoderConf) -> None:
        super().__init__()
        self.channel_proj1 = nn.Sequential(
            nn.Linear(conf.output_size, conf.cgmlp_linear_units), nn.GELU()
        )
        self.csgu = ConvolutionalGate(conf)
        self.channel_proj2 = nn.Linear(conf.cgmlp_linear_units // 2, conf.output_size)

    def forward(
        self, x: torch.Tensor, padded: torch.Tensor | None, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply the module to a batch or to a chunk.

        Args:
            x: (B, T, D).
            padded: (B, T, 1) bool, True where x is padding; None: no padding.
            past: (B, cgmlp_linear_units / 2, left_frames); None outside of streaming.

        Returns:
            (B, T, D), and the next `past`, or None outside of streaming.
        """
        x, present = self.csgu(self.channel_proj1(x), padded, past)
        return self.channel_proj2(x), present


WEIGHS_BRANCHES = (
    "merge_method learned_ave weighs the branches by the whole utterance; train with concat"
)


def _pack(memories: list[torch.Tensor], dim: int) -> torch.Tensor:
    """Pack the pasts of convolutions, (B, C, F) each, into one cache (B, dim, frames) as C++
    runtimes store it.
    """
    flat = torch.cat([memory.flatten(1) for memory in memories], dim=1)
    frames = (flat.size(1) + dim - 1) // dim
    return pad(flat, (0, frames * dim - flat.size(1))).view(flat.size(0), dim, frames)


def _unpack(packed: torch.Tensor, start: int, channels: int, frames: int) -> torch.Tensor:
    """Return the past (B, channels, frames) at place `start` of a cache that `_pack` returned."""
    return packed.flatten(1)[:, start : start + channels * frames].reshape(
        packed.size(0), channels, frames
    )


def _depth_scale(rate: float) -> float:
    """Return the factor for the output of a block that a share `rate` of the training batches
    skips; keeps the mean.
    """
    return 1.0 / (1.0 - rate)


def _used_branches(conf: BranchformerEncoderConf, block: int) -> tuple[bool, bool]:
    """Tell whether a block has attention, and whether it has a cgMLP. A branch with the fixed
    weight 0 is not built.
    """
    share = 0.5
    if conf.merge_method == "fixed_ave" and conf.use_attn and conf.use_cgmlp:
        share = conf.of_blocks("cgmlp_weight")[block]
    return conf.use_attn and share < 1.0, conf.use_cgmlp and share > 0.0


class BranchformerEncoderLayer(nn.Module):
    """Attention and cgMLP in parallel, then a merge of both (Peng et al. 2022)."""

    def __init__(self, conf: BranchformerEncoderConf, block: int) -> None:
        super().__init__()
        dim = conf.output_size
        self.share = conf.of_blocks("cgmlp_weight")[block]
        has_both_branches = conf.use_attn and conf.use_cgmlp
        use_attn, use_cgmlp = _used_branches(conf, block)
        self.attn = self_attention(conf) if use_attn else None
        self.cgmlp = ConvolutionalGatingMLP(conf) if use_cgmlp else None
        self.norm_mha = nn.LayerNorm(dim) if use_attn else None
        self.norm_mlp = nn.LayerNorm(dim) if use_cgmlp else None
        self.norm_final = nn.LayerNorm(dim)
        self.dropout = Dropout(conf.dropout_rate)
        self.merge_method = conf.merge_method
        self.attn_branch_drop_rate = conf.of_blocks("attn_branch_drop_rate")[block]
        self.depth_scale = _depth_scale(conf.of_blocks("stochastic_depth_rate")[block])
        # Every checkpoint of WeNet contains these four layers, also if the merge method does not
        # use them.
        self.pooling_proj1, self.pooling_proj2, self.weight_proj1, self.weight_proj2 = (
            nn.Linear(dim, 1).requires_grad_(
                has_both_branches and conf.merge_method == "learned_ave"
            )
            for _ in range(4)
        )
        width = 2 * dim if conf.merge_method == "concat" else dim
        self.merge_proj = nn.Linear(width, dim) if has_both_branches else nn.Identity()

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
        attended = x
        if self.attn is not None and self.norm_mha is not None:
            attended, att_past = self.attn(self.norm_mha(x), bias, pos_emb, att_past)
            attended = self.dropout(attended)
        elif att_past is not None:
            att_past = pad(att_past, (0, 0, 0, x.size(1)))  # zeros: all layers share one cache

        gated, cnn_past = self._gate(x, padded, cnn_past)
        merged = self.dropout(self.merge_proj(self._merge(attended, gated, padded)))
        scale = self.depth_scale if self.training else 1.0
        return self.norm_final(torch.add(x, merged, alpha=scale)), att_past, cnn_past

    def _gate(
        self, x: torch.Tensor, padded: torch.Tensor | None, cnn_past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply the cgMLP branch -> (B, T, D), the next `cnn_past`."""
        if self.cgmlp is None or self.norm_mlp is None:
            return x, cnn_past

        gate_past: torch.Tensor | None = None
        if cnn_past is not None:
            conv = self.cgmlp.csgu.conv
            gate_past = _unpack(cnn_past, 0, conv.channels, conv.left_frames)

        gated, gate_past = self.cgmlp(self.norm_mlp(x), padded, gate_past)
        if gate_past is not None:
            cnn_past = _pack([gate_past], x.size(2))

        return self.dropout(gated), cnn_past

    def _merge(
        self, attended: torch.Tensor, gated: torch.Tensor, padded: torch.Tensor | None
    ) -> torch.Tensor:
        """Merge the outputs of the branches (B, T, D) -> (B, T, D), or (B, T, 2 D) with
        merge_method concat.
        """
        if self.attn is None:
            return gated
        if self.cgmlp is None:
            return attended
        if self.merge_method == "concat":
            return torch.cat((attended, gated), dim=2)
        if self.merge_method == "fixed_ave":
            return (1.0 - self.share) * attended + self.share * gated

        weight = self._weight_of_attention(attended, gated, padded)
        return weight * attended + (1.0 - weight) * gated

    def _weight_of_attention(
        self, attended: torch.Tensor, gated: torch.Tensor, padded: torch.Tensor | None
    ) -> torch.Tensor:
        """Weight (B, 1, 1) of the attention branch, from a weighted mean of each branch over the
        utterance.
        """
        weight1 = self.weight_proj1(_pooled(attended, self.pooling_proj1(attended), padded))
        weight2 = self.weight_proj2(_pooled(gated, self.pooling_proj2(gated), padded))
        weight = torch.sigmoid(weight1 - weight2).unsqueeze(2)
        if self.training and self.attn_branch_drop_rate > 0.0:
            weight = weight * (torch.rand(1, device=weight.device) >= self.attn_branch_drop_rate)

        return weight


def _pooled(x: torch.Tensor, scores: torch.Tensor, padded: torch.Tensor | None) -> torch.Tensor:
    """Return the mean (B, D) of x (B, T, D), weighted by the softmax of scores (B, T, 1); padding
    has weight 0.
    """
    scores = scores / x.size(2) ** 0.5
    if padded is not None:
        scores = scores.masked_fill(padded, -30000.0)
    return (scores.softmax(dim=1) * x).sum(dim=1)


class EBranchformerEncoderLayer(nn.Module):
    """Layer of the E-Branchformer (Kim et al. 2022).

    Halved feed-forward, attention and cgMLP in parallel, a convolution that merges both, halved
    feed-forward.
    """

    def __init__(self, conf: EBranchformerEncoderConf, block: int) -> None:
        super().__init__()
        dim = conf.output_size
        macaron = conf.use_ffn and conf.macaron_style
        self.attn = self_attention(conf)
        self.cgmlp = ConvolutionalGatingMLP(conf)
        self.feed_forward = (
            build_feed_forward(conf.output_size, conf.dropout_rate, conf) if conf.use_ffn else None
        )
        self.feed_forward_macaron = (
            build_feed_forward(conf.output_size, conf.dropout_rate, conf) if macaron else None
        )
        self.norm_ff = nn.LayerNorm(dim) if conf.use_ffn else None
        self.norm_ff_macaron = nn.LayerNorm(dim) if macaron else None
        self.norm_mha = nn.LayerNorm(dim)
        self.norm_mlp = nn.LayerNorm(dim)
        self.norm_final = nn.LayerNorm(dim)
        self.depthwise_conv_fusion = DepthwiseConv(2 * dim, conf.merge_conv_kernel, conf.causal)
        self.merge_proj = nn.Linear(2 * dim, dim)
        self.dropout = Dropout(conf.dropout_rate)
        self.depth_scale = _depth_scale(conf.of_blocks("stochastic_depth_rate")[block])
        self.ff_scale = 0.5 if macaron else 1.0

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
        scale = self.depth_scale if self.training else 1.0
        if self.feed_forward_macaron is not None and self.norm_ff_macaron is not None:
            half = self.dropout(self.feed_forward_macaron(self.norm_ff_macaron(x)))
            x = torch.add(x, half, alpha=scale * self.ff_scale)

        gate_past: torch.Tensor | None = None
        merge_past: torch.Tensor | None = None
        if cnn_past is not None:
            gate, merge = self.cgmlp.csgu.conv, self.depthwise_conv_fusion
            gate_past = _unpack(cnn_past, 0, gate.channels, gate.left_frames)
            start = gate.channels * gate.left_frames
            merge_past = _unpack(cnn_past, start, merge.channels, merge.left_frames)

        attended, att_present = self.attn(self.norm_mha(x), bias, pos_emb, att_past)
        gated, gate_present = self.cgmlp(self.norm_mlp(x), padded, gate_past)
        both = torch.cat((self.dropout(attended), self.dropout(gated)), dim=2)
        with_past, merge_present = self.depthwise_conv_fusion.remember(both, merge_past)
        merged = self.merge_proj(both + self.depthwise_conv_fusion(with_past, padded))
        x = torch.add(x, self.dropout(merged), alpha=scale)
        cnn_present: torch.Tensor | None = None
        if gate_present is not None and merge_present is not None:
            cnn_present = _pack([gate_present, merge_present], x.size(2))

        if self.feed_forward is not None and self.norm_ff is not None:
            half = self.dropout(self.feed_forward(self.norm_ff(x)))
            x = torch.add(x, half, alpha=scale * self.ff_scale)

        return self.norm_final(x), att_present, cnn_present


class _BranchEncoder(LayeredEncoder):
    """Common part of both encoders."""

    def __init__(
        self,
        input_size: int,
        conf: BranchEncoderConf,
        layers: list[nn.Module],
        global_cmvn: nn.Module | None,
        obstacle: str = "",
    ) -> None:
        embed = input_layer(input_size, conf)
        convolutions_of_layers = [
            [module for module in layer.modules() if isinstance(module, DepthwiseConv)]
            for layer in layers
        ]
        # The convolutions of a layer keep these numbers between chunks. The cache of a layer has
        # them as frames of the width of the encoder.
        most_numbers = max(
            sum(conv.channels * conv.left_frames for conv in convolutions)
            for convolutions in convolutions_of_layers
        )
        sees_future = any(convolutions_of_layers) and not conf.causal
        traits = replace(
            traits_of(conf),
            cnn_cache_frames=-(-most_numbers // conf.output_size),
            obstacle=obstacle or (SEES_FUTURE if sees_future else embed.obstacle),
        )
        super().__init__(embed, conf, traits, layers, global_cmvn)
        self.drop_rates = list(conf.of_blocks("stochastic_depth_rate"))


class BranchformerEncoder(_BranchEncoder):
    """Branchformer (Peng et al. 2022, https://arxiv.org/abs/2207.02971)."""

    def __init__(
        self, input_size: int, conf: BranchformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [
            BranchformerEncoderLayer(conf, block) for block in range(conf.num_blocks)
        ]
        weighs = conf.merge_method == "learned_ave" and conf.use_attn and conf.use_cgmlp
        super().__init__(
            input_size, conf, layers, global_cmvn, obstacle=WEIGHS_BRANCHES if weighs else ""
        )


class EBranchformerEncoder(_BranchEncoder):
    """E-Branchformer (Kim et al. 2022, https://arxiv.org/abs/2210.00077)."""

    def __init__(
        self, input_size: int, conf: EBranchformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [
            EBranchformerEncoderLayer(conf, block) for block in range(conf.num_blocks)
        ]
        super().__init__(input_size, conf, layers, global_cmvn)
