"""Attention of the Zipformer: weights that a layer computes once, and the modules that share them
(section 3.1).
"""

import torch
from torch import nn

from wenet_uio.addons.encoders.zipformer.conf import StackConf
from wenet_uio.addons.encoders.zipformer.modules import scaled_linear, shifted
from wenet_uio.addons.encoders.zipformer.regularisers import (
    Balancer,
    Whitener,
    happens,
    limited_scores,
)
from wenet_uio.models.clock import Clock, Clocked, Schedule
from wenet_uio.models.dropout import Dropout

BLOCKED = -1000.0
"""Score of a key that a query must not see; it fits in half precision, and its exp is 0."""


def remembered(x: torch.Tensor, past: torch.Tensor | None) -> torch.Tensor:
    """Put frames (B, T, D) behind those of the past (B, C, D) -> (B, C + T, D)."""
    return x if past is None else torch.cat((past, x), dim=1)


class AttentionWeights(Clocked):
    """Weights of attention, with scores of relative positions that depend on the query."""

    def __init__(self, clock: Clock, sizes: StackConf, pos_dim: int) -> None:
        super().__init__(clock)
        self.heads = sizes.num_heads
        self.head_dim, self.pos_head_dim = sizes.query_head_dim, sizes.pos_head_dim
        width = self.heads * (2 * self.head_dim + self.pos_head_dim)
        # The initial scale replaces the factor head_dim ** -0.5 of the scores.
        self.in_proj = scaled_linear(sizes.encoder_dim, width, self.head_dim**-0.25)
        self.linear_pos = scaled_linear(pos_dim, self.heads * self.pos_head_dim, 0.05, bias=False)
        # Scores do not change if a constant is added to all keys, but the optimizer could let it
        # grow.
        self.balance_keys = Balancer(clock, (0.4, 0.6), (0.0, 100.0), probability=0.025)
        self.whiten_keys = Whitener(clock, 3.0, 6.0, strength=0.025, groups=self.heads)
        self.position_dropout = Dropout(0.15)
        self.blocked_score = BLOCKED
        self.skip_positions = Schedule(clock, (0.0, 0.5), (4000.0, 0.0))

    def forward(
        self,
        x: torch.Tensor,
        pos_emb: torch.Tensor,
        blocked: torch.Tensor | None,
        past: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the attention weights (B, H, T, C + T) of frames x (B, T, D), and the keys (B, C
        + T, …).

        Args:
            pos_emb: encodings of `relative_positions`.
            blocked: bool, broadcast to (B, 1, T, C + T), True for keys that a query must not see.
            past: (B, C, …) keys before x.
        """
        width = self.heads * self.head_dim
        query, key, position = self.in_proj(x).split(
            [width, width, self.heads * self.pos_head_dim], dim=2
        )
        key = remembered(self.whiten_keys(self.balance_keys(key)), past)
        query, position = self.as_heads(query), self.as_heads(position)
        scores = torch.matmul(query, self.as_heads(key).transpose(2, 3))

        # Scores of the distances between query and key, (B, H, T, C + 2 T) before the shift.
        distances = self.linear_pos(self.position_dropout(pos_emb)).view(
            -1, self.heads, self.pos_head_dim
        )
        by_position = shifted(torch.matmul(position, distances.permute(1, 2, 0)), key.size(1))
        scores = self.drawn(scores, by_position) if self.training else scores + by_position
        if blocked is not None:
            scores = scores.masked_fill(blocked, self.blocked_score)

        return scores.softmax(dim=3), key

    def as_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Split the channels into heads: (B, T, H * d) -> (B, H, T, d)."""
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    @torch.jit.unused
    def drawn(self, scores: torch.Tensor, by_position: torch.Tensor) -> torch.Tensor:
        """Return the sum of both scores; some steps disregard positions, but give their weights
        gradients.
        """
        return limited_scores(scores + by_position * float(not happens(self.skip_positions())))


class SelfAttention(nn.Module):
    """Values averaged by the weights of attention."""

    def __init__(self, clock: Clock, sizes: StackConf) -> None:
        super().__init__()
        width = sizes.num_heads * sizes.value_head_dim
        self.in_proj = nn.Linear(sizes.encoder_dim, width)
        self.out_proj = scaled_linear(width, sizes.encoder_dim, 0.05)
        self.whiten = Whitener(clock, 7.5, 22.5)
        self.heads = sizes.num_heads

    def forward(
        self, x: torch.Tensor, weights: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply the weights (B, H, T, C + T) to frames x (B, T, D) -> (B, T, D), and the values (B,
        C + T, …).
        """
        value = remembered(self.in_proj(x), past)
        heads = value.view(value.size(0), value.size(1), self.heads, -1).transpose(1, 2)

        attended = torch.matmul(weights, heads).transpose(1, 2).flatten(2)  # (B, T, H * d)
        return self.whiten(self.out_proj(attended)), value


class NonlinearAttention(nn.Module):
    """Gated frames averaged by the weights of the first head, then gated again."""

    def __init__(self, clock: Clock, dim: int) -> None:
        super().__init__()
        width = dim * 3 // 4
        self.in_proj = nn.Linear(dim, 3 * width)
        positive = (
            Schedule(clock, (0.0, 0.25), (20000.0, 0.05)),
            Schedule(clock, (0.0, 0.75), (20000.0, 0.95)),
        )
        self.balancer = Balancer(clock, positive, (0.5, 5.0))
        self.out_proj = scaled_linear(width, dim, 0.05)
        self.whiten1 = Whitener(clock, 5.0, 10.0)
        self.whiten2 = Whitener(clock, 5.0, 15.0)

    def forward(
        self, x: torch.Tensor, weights: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply the weights (B, T, C + T) to gated frames x (B, T, D) -> (B, T, D), and the gated
        frames (B, C + T, …).
        """
        gate, value, output_gate = self.in_proj(x).chunk(3, dim=2)
        gated = remembered(self.whiten1(value) * self.balancer(gate).tanh(), past)

        averaged = torch.matmul(weights, gated)
        return self.whiten2(self.out_proj(averaged * output_gate)), gated
