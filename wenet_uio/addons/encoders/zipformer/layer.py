"""Layers of the Zipformer, and stacks of them at one frame rate (Yao et al. 2023, sections 3.1 and
3.2).
"""

from typing import NamedTuple, Optional

import torch
from torch import nn

from wenet_uio.addons.encoders.zipformer.attention import (
    AttentionWeights,
    NonlinearAttention,
    SelfAttention,
)
from wenet_uio.addons.encoders.zipformer.conf import StackConf, ZipformerEncoderConf
from wenet_uio.addons.encoders.zipformer.convolution import ZipformerConvolution
from wenet_uio.addons.encoders.zipformer.modules import (
    BiasNorm,
    Bypass,
    Downsample,
    ScheduledDropout,
    scaled_linear,
    swoosh_l,
)
from wenet_uio.addons.encoders.zipformer.regularisers import Balancer, Whitener, happens, kept_rows
from wenet_uio.models.clock import Clock, Clocked, Schedule
from wenet_uio.models.layer_parts import recomputed

LARGEST_SKIP_RATE = 0.5
"""Share of the utterances that skip a layer before its turn to learn."""


class Context(NamedTuple):
    """What the layers of a stack share, at the rate of the stack. TorchScript needs `Optional`."""

    pos_emb: torch.Tensor
    """Encodings of `relative_positions`."""
    blocked: Optional[torch.Tensor]  # noqa: UP045
    """Bool, broadcast to (B, 1, T, C + T): True for keys that a query must not see."""
    padded: Optional[torch.Tensor]  # noqa: UP045
    """(B, T, 1) bool, True for frames after the end of an utterance."""
    lengths: Optional[torch.Tensor]  # noqa: UP045
    """(B,) frames of each utterance, if its last frames must not depend on the padding."""
    chunk_size: int
    """Frames of a chunk; negative: the whole utterance."""
    channels: Optional[torch.Tensor]  # noqa: UP045
    """(B, 1, D) zeros for channels that training masks, else ones."""


class Past(NamedTuple):
    """What a layer keeps of earlier chunks, in the order of its caches; None for whole utterances.

    Keys, gated frames and values are (B, C, …), pasts of convolutions (B, D, kernel // 2).
    """

    keys: Optional[torch.Tensor]  # noqa: UP045
    gated: Optional[torch.Tensor]  # noqa: UP045
    values1: Optional[torch.Tensor]  # noqa: UP045
    values2: Optional[torch.Tensor]  # noqa: UP045
    convolved1: Optional[torch.Tensor]  # noqa: UP045
    convolved2: Optional[torch.Tensor]  # noqa: UP045


class Kept(NamedTuple):
    """(B, 1, 1) zeros for the utterances that skip a module in training, else ones; None outside of
    training.
    """

    attention: Optional[torch.Tensor]  # noqa: UP045
    convolution1: Optional[torch.Tensor]  # noqa: UP045
    feed_forward2: Optional[torch.Tensor]  # noqa: UP045
    convolution2: Optional[torch.Tensor]  # noqa: UP045
    feed_forward3: Optional[torch.Tensor]  # noqa: UP045


def past_of(caches: list[torch.Tensor]) -> Past:
    """Return the caches of a layer by name; whole utterances have none."""
    if len(caches) == 0:
        return Past(None, None, None, None, None, None)
    return Past(caches[0], caches[1], caches[2], caches[3], caches[4], caches[5])


def thinned(x: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """Return x, with zeros for the utterances that skip the module."""
    return x if kept is None else x * kept


class FeedForward(nn.Module):
    """Two linear layers with SwooshL."""

    def __init__(self, clock: Clock, dim: int, hidden: int, dropout_rate: float) -> None:
        super().__init__()
        self.in_proj = nn.Linear(dim, hidden)
        self.hidden_balancer = Balancer(clock, (0.3, 1.0), (0.75, 5.0))
        self.dropout = ScheduledDropout(clock, dropout_rate, shared_dim=1)
        self.out_proj = scaled_linear(hidden, dim, 0.1)
        self.out_whiten = Whitener(clock, 7.5, 15.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the module: (B, T, D) -> (B, T, D)."""
        hidden = swoosh_l(self.hidden_balancer(self.in_proj(x)))
        return self.out_whiten(self.out_proj(self.dropout(hidden)))


class ZipformerLayer(Clocked):
    """Two halves, each with attention, convolution and feed-forward; the attention weights are
    computed once.

    `skip_rate`: share of the utterances that skip the layer.
    """

    def __init__(
        self, clock: Clock, conf: ZipformerEncoderConf, sizes: StackConf, skip_rate: Schedule
    ) -> None:
        super().__init__(clock)
        dim, hidden, rate = sizes.encoder_dim, sizes.feedforward_dim, conf.dropout_rate
        # icefall's checkpoints have this weight; it is not used.
        self.bypass_scale = nn.Parameter(torch.full((dim,), 0.5), requires_grad=False)
        self.bypass = Bypass(clock, dim, skip_rate)
        self.bypass_mid = Bypass(clock, dim)
        self.self_attn_weights = AttentionWeights(clock, sizes, conf.pos_dim)
        self.self_attn1 = SelfAttention(clock, sizes)
        self.self_attn2 = SelfAttention(clock, sizes)
        self.feed_forward1 = FeedForward(clock, dim, hidden * 3 // 4, rate)
        self.feed_forward2 = FeedForward(clock, dim, hidden, rate)
        self.feed_forward3 = FeedForward(clock, dim, hidden * 5 // 4, rate)
        self.nonlin_attention = NonlinearAttention(clock, dim)
        self.conv_module1 = ZipformerConvolution(clock, dim, sizes.cnn_module_kernel, conf.causal)
        self.conv_module2 = ZipformerConvolution(clock, dim, sizes.cnn_module_kernel, conf.causal)
        self.norm = BiasNorm(dim)
        least_na, least_ff2, least_ff3 = (
            Schedule(clock, (0.0, at_start), (4000.0, at_step_4000))
            for at_start, at_step_4000 in ((0.004, 0.02), (0.0, 0.1), (0.0, 0.2))
        )
        self.balancer_na = Balancer(clock, (0.3, 0.7), (least_na, 100.0), probability=0.05)
        self.balancer_ff2 = Balancer(clock, (0.3, 0.7), (least_ff2, 2.0), probability=0.05)
        self.balancer_ff3 = Balancer(clock, (0.3, 0.7), (least_ff3, 4.0), probability=0.05)
        self.balancer1 = Balancer(clock, (0.45, 0.55), (0.2, 4.0))
        self.balancer2 = Balancer(clock, (0.45, 0.55), (0.1, 4.0))
        self.whiten = Whitener(clock, 4.0, 12.0)
        self.skip_module = Schedule(clock, (0.0, 0.2), (4000.0, 0.05), (16000.0, 0.0))
        self.skip_feed_forward = Schedule(clock, (0.0, 0.1), (4000.0, 0.01), (50000.0, 0.0))
        self.constant_attention = Schedule(clock, (0.0, 0.25), (4000.0, 0.025))

    def forward(
        self, x: torch.Tensor, context: Context, caches: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Apply the layer to frames (B, T, D) -> (B, T, D), and the caches with these frames.

        Args:
            caches: those of `Past`, in its order; empty for whole utterances.
        """
        before, past = x, past_of(caches)
        kept = Kept(None, None, None, None, None)
        if self.training:
            kept = self.draw_kept(x)

        # The first half. All attention of the layer shares the weights.
        weights, keys = self.self_attn_weights(x, context.pos_emb, context.blocked, past.keys)
        x = x + self.feed_forward1(x)
        first = self.sometimes_equal(weights[:, 0]) if self.training else weights[:, 0]
        attended, gated = self.nonlin_attention(x, first, past.gated)
        x = x + thinned(self.balancer_na(attended), kept.attention)
        attended, values1 = self.self_attn1(x, weights, past.values1)
        x = x + thinned(attended, kept.attention)
        convolved, convolved1 = self.conv_module1(
            x, context.padded, context.chunk_size, context.lengths, past.convolved1
        )
        x = x + thinned(convolved, kept.convolution1)
        x = x + thinned(self.balancer_ff2(self.feed_forward2(x)), kept.feed_forward2)
        x = self.bypass_mid(before, x)

        # The second half.
        attended, values2 = self.self_attn2(x, weights, past.values2)
        x = x + thinned(attended, kept.attention)
        convolved, convolved2 = self.conv_module2(
            x, context.padded, context.chunk_size, context.lengths, past.convolved2
        )
        x = x + thinned(convolved, kept.convolution2)
        x = x + thinned(self.balancer_ff3(self.feed_forward3(x)), kept.feed_forward3)
        x = self.bypass(before, self.norm(self.balancer1(x)))

        presents = [keys, gated, values1, values2, convolved1, convolved2]
        return self.whiten(self.balancer2(x)), presents

    @torch.jit.unused
    def draw_kept(self, x: torch.Tensor) -> Kept:
        """Draw the utterances that skip attention, convolution, feed-forward, and these again."""
        module, feed_forward = self.skip_module, self.skip_feed_forward
        rates = [schedule() for schedule in (module, module, feed_forward)]
        return Kept(*(kept_rows(x, rate) for rate in (*rates, *rates[1:])))

    @torch.jit.unused
    def sometimes_equal(self, weights: torch.Tensor) -> torch.Tensor:
        """Return weights (B, T, K); in some steps, equal weights for all keys that a query sees."""
        if not happens(self.constant_attention()):
            return weights
        is_seen = (weights > 0.0).to(weights.dtype)
        return is_seen / is_seen.sum(dim=2, keepdim=True)


class Stack(nn.Module):
    """Layers at one frame rate."""

    def __init__(self, clock: Clock, conf: ZipformerEncoderConf, place: int) -> None:
        """Build stack `place` of the encoder."""
        super().__init__()
        sizes = conf.stacks[place]
        num_layers = sizes.num_encoder_layers

        # Stacks and their layers take turns: the skip rate of a layer falls during its turn, which
        # is from one batch of the warm-up to another.
        stack_begin = conf.warmup_batches * (place + 1) / (conf.num_stacks + 1)
        stack_turn = conf.warmup_batches / (conf.num_stacks + 1)
        turns = [
            (
                stack_begin + stack_turn * layer / num_layers,
                stack_begin + stack_turn * (layer + 1) / num_layers,
            )
            for layer in range(num_layers)
        ]
        last_skip_rate = 0.035 * sizes.downsampling_factor**0.5
        skip_rates = [
            Schedule(clock, (begin, LARGEST_SKIP_RATE), (end, last_skip_rate))
            for begin, end in turns
        ]
        self.layers = nn.ModuleList(
            [ZipformerLayer(clock, conf, sizes, rate) for rate in skip_rates]
        )
        self.gradient_checkpointing = conf.gradient_checkpointing

    def forward(
        self, x: torch.Tensor, context: Context, caches: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Apply the layers to frames (B, T, D) -> (B, T, D), and the caches of all layers; see
        ZipformerLayer.forward.
        """
        presents: list[torch.Tensor] = []
        channels = context.channels
        if channels is not None:
            x = x * channels

        per_layer = len(caches) // len(self.layers)
        for i, layer in enumerate(self.layers):
            if self.training and self.gradient_checkpointing:
                x = self.recomputed(i, x, context)
            else:
                x, present = layer(x, context, caches[i * per_layer : (i + 1) * per_layer])
                presents += present
            if channels is not None:
                x = x * channels

        return x, presents

    @torch.jit.unused
    def recomputed(self, place: int, x: torch.Tensor, context: Context) -> torch.Tensor:
        """Apply a layer whose activations the backward pass computes again."""
        return recomputed(self.layers[place], x, context, [])[0]


class FullRateStack(Stack):
    """A stack at the rate of the input layer."""

    def run(
        self,
        x: torch.Tensor,
        context: Context,
        caches: list[torch.Tensor],
        lengths: torch.Tensor | None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Apply the layers to frames (B, T, D) -> (B, T, D), and caches; `lengths` is that of
        LowRateStack.
        """
        return self.forward(x, context, caches)


class LowRateStack(nn.Module):
    """A stack at a lower rate, whose output is added to its input."""

    def __init__(self, clock: Clock, conf: ZipformerEncoderConf, place: int) -> None:
        """Build stack `place` of the encoder."""
        super().__init__()
        sizes = conf.stacks[place]
        self.downsample = Downsample(sizes.downsampling_factor)
        self.encoder = Stack(clock, conf, place)
        self.out_combiner = Bypass(clock, sizes.encoder_dim)
        self.factor = sizes.downsampling_factor

    def run(
        self,
        x: torch.Tensor,
        context: Context,
        caches: list[torch.Tensor],
        lengths: torch.Tensor | None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Apply the layers to frames (B, T, D) -> (B, T, D), and caches. `context` is at the lower
        rate, `lengths` (B,) at that of x.
        """
        low, presents = self.encoder(self.downsample(x, lengths), context, caches)
        back = low.repeat_interleave(self.factor, dim=1)[:, : x.size(1)]
        return self.out_combiner(x, back), presents
