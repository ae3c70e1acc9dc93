"""One layer of the attention decoder."""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.model import DecoderConf
from wenet_uio.models.attention import MultiHeadedAttention
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.layer_parts import build_feed_forward, build_norm


class DecoderLayer(nn.Module):
    """Self-attention over the tokens so far, attention over the encoder frames, feed-forward."""

    def __init__(self, dim: int, conf: DecoderConf) -> None:
        super().__init__()
        self.self_attn = MultiHeadedAttention(dim, conf.self_attention_dropout_rate, conf)
        self.src_attn = MultiHeadedAttention(dim, conf.src_attention_dropout_rate, conf.source)
        self.feed_forward = build_feed_forward(dim, conf.dropout_rate, conf)
        self.norm1 = build_norm(dim, conf)
        self.norm2 = build_norm(dim, conf)
        self.norm3 = build_norm(dim, conf)
        self.dropout = Dropout(conf.dropout_rate)
        self.normalize_before = conf.normalize_before

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor, memory: torch.Tensor, memory_bias: torch.Tensor
    ) -> torch.Tensor:
        """Apply the layer to all tokens of a batch.

        Args:
            x: (B, U, D) tokens.
            bias: (B, 1, U, U), added to the scores of the tokens.
            memory: (B, T, D) encoder frames.
            memory_bias: (B, 1, 1, T), added to the scores of the encoder frames.
        """
        normed = self.norm1(x) if self.normalize_before else x
        key, value = self.self_attn.project_memory(normed)
        x = self._after_self(x, self.self_attn.attend_memory(normed, key, value, bias))
        key, value = self.src_attn.project_memory(memory)

        return self._after_source(x, key, value, memory_bias)

    @torch.jit.unused
    def forward_one_step(
        self,
        x: torch.Tensor,
        past: torch.Tensor,
        source: tuple[torch.Tensor, torch.Tensor],
        memory_bias: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Apply the layer to one token of each of K hypotheses of B utterances.

        Args:
            x: (B, K, D).
            past: (B * K, H, U, 2 D / H) keys and values of the tokens before.
            source: keys and values of the encoder frames, (B, H, T, D / H) each. The hypotheses of
                an utterance share them: they are K positions of one query.
            memory_bias: (B, 1, 1, T).

        Returns:
            (B, K, D), and `past` extended by the new token (B * K, H, U + 1, 2 D / H).
        """
        normed = self.norm1(x) if self.normalize_before else x
        token = normed.flatten(0, 1).unsqueeze(1)
        key, value, present = self.self_attn.remember(token, past)
        assert present is not None
        attended = self.self_attn.attend_memory(token, key, value, None)
        x = self._after_self(x, attended.view(x.shape))

        return self._after_source(x, source[0], source[1], memory_bias), present

    def _after_self(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(attended)
        return x if self.normalize_before else self.norm1(x)

    def _after_source(
        self, x: torch.Tensor, key: torch.Tensor, value: torch.Tensor, memory_bias: torch.Tensor
    ) -> torch.Tensor:
        """Attend to the encoder, and run the feed-forward module: (B, U, D) -> (B, U, D)."""
        attended = self.src_attn.attend_memory(
            self.norm2(x) if self.normalize_before else x, key, value, memory_bias
        )
        x = x + self.dropout(attended)
        if not self.normalize_before:
            x = self.norm2(x)

        x = x + self.dropout(self.feed_forward(self.norm3(x) if self.normalize_before else x))
        return x if self.normalize_before else self.norm3(x)
