"""Rotary positions: queries and keys are turned by angles that grow with their position (Su et al.
2021).
"""

from __future__ import annotations

import torch

from wenet_uio.models.attention import MultiHeadedAttention


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn the first half of each head against its second half: x (B, H, T, d), angles (1, T, d /
    2, 2).
    """
    first, second = x.chunk(2, dim=3)
    cosine, sine = angles[..., 0].unsqueeze(1), angles[..., 1].unsqueeze(1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=3)


class RotaryMultiHeadedAttention(MultiHeadedAttention):
    """Self-attention whose scores depend on the distance of query and key through the angles of
    both.
    """

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply self-attention to frames x (B, T, D) -> (B, T, D), and keys and values for the next
        chunk.

        `bias` and `past` are those of MultiHeadedAttention.forward. `pos_emb` (1, K, d / 2, 2) has
        the angles of all K keys. The keys of the past are turned already.
        """
        # The T frames of x are the last of the K keys.
        angles = pos_emb[:, pos_emb.size(1) - x.size(1) :]
        key, value = self.project_memory(x)
        key, value, present = self.append(turned(key, angles), value, past)
        query = turned(self.split_heads(self.linear_q(x)), angles)

        return self.attend(query, self.spread(key), self.spread(value), bias), present
