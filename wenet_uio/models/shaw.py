"""Attention with a learned embedding for each distance of query and key (Shaw et al. 2018)."""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.encoder import AttentionConf
from wenet_uio.models.attention import MultiHeadedAttention

MOST_LEFT, MOST_RIGHT = 64, 8
"""Distances in frames beyond which all keys have the same embedding."""


class ShawMultiHeadedAttention(MultiHeadedAttention):
    """Self-attention; the score of query q_i and key k_j is q_i (k_j + r_(j - i))."""

    def __init__(self, dim: int, dropout_rate: float, conf: AttentionConf) -> None:
        super().__init__(dim, dropout_rate, conf)
        # TorchScript reads no constants of a module
        self.most_left, self.most_right = (
            MOST_LEFT,
            MOST_RIGHT,
        )
        self.rel_k_embed = nn.Embedding(MOST_LEFT + MOST_RIGHT + 1, self.head_dim)

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See MultiHeadedAttention.forward."""
        key, value, present = self.remember(x, past)
        place = torch.arange(key.size(2), device=x.device)
        distance = place.unsqueeze(0) - place[key.size(2) - x.size(1) :].unsqueeze(1)
        # (T, K, d)
        embedded = self.rel_k_embed(
            distance.clamp(-self.most_left, self.most_right) + self.most_left
        )
        query = self.split_heads(self.linear_q(x))
        scores = torch.einsum("bhtd,tkd->bhtk", query, embedded) * self.head_dim**-0.5
        if bias is not None:
            scores = scores + bias

        return self.attend(query, self.spread(key), self.spread(value), scores), present
