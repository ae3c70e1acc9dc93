"""Multi-head attention through scaled_dot_product_attention: with absolute, relative and rotary
positions, and of each frame to its neighbours (`att_context_size`).

H is the number of heads of queries, G that of keys and values (G = H unless heads share keys), d
the width of a head.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config.encoder import AttentionConf, EncoderConf, LimitedContextConf
from wenet_uio.models.dropout import attended, with_term
from wenet_uio.models.masks import additive


class MultiHeadedAttention(nn.Module):
    """Attention of one sequence over another sequence or over itself (Vaswani et al. 2017)."""

    def __init__(self, dim: int, dropout_rate: float, conf: AttentionConf) -> None:
        super().__init__()
        self.heads = conf.attention_heads
        self.head_dim = conf.head_dim or dim // conf.attention_heads
        self.shared_by = conf.attention_heads // conf.key_heads
        self.dropout_rate = dropout_rate
        context = conf.att_context_size if isinstance(conf, LimitedContextConf) else (-1, -1)
        self.limited = context != (-1, -1)
        self.context = context_with_block(context)
        width, key_width = self.heads * self.head_dim, conf.key_heads * self.head_dim
        self.linear_q = nn.Linear(dim, width, bias=conf.query_bias)
        self.linear_k = nn.Linear(dim, key_width, bias=conf.key_bias)
        self.linear_v = nn.Linear(dim, key_width, bias=conf.value_bias)
        self.linear_out = nn.Linear(width, dim, bias=conf.query_bias)

    def reach(self) -> tuple[int, int] | None:
        """Return how many frames before and after a frame it sees; None: all on one side or both."""
        before, after, _ = self.context
        return (before, after) if before >= 0 and after >= 0 else None

    def split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Split channels into heads: (B, T, heads * d) -> (B, heads, T, d), for H heads of queries
        or G heads of keys and values.
        """
        return x.view(x.size(0), x.size(1), -1, self.head_dim).transpose(1, 2)

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """Repeat keys or values (B, G, K, d) -> (B, H, K, d): a head of keys serves H / G
        neighbouring heads of queries.
        """
        if self.shared_by == 1:
            return x
        return x.repeat_interleave(self.shared_by, dim=1)

    def project_memory(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Project memory (B, T, D) to keys and values, (B, G, T, d) each."""
        return self.split_heads(self.linear_k(memory)), self.split_heads(self.linear_v(memory))

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | None,
        scale: float | None = None,
    ) -> torch.Tensor:
        """Attend with queries (B, H, Q, d) to keys and values (B, H, K, d), with a bias that
        broadcasts to (B, H, Q, K) -> (B, Q, D).
        """
        dropout_rate = self.dropout_rate if self.training else 0.0
        if self.limited:
            heads = attended_nearby(query, key, value, bias, self.context, dropout_rate, scale)
        else:
            heads = attended(query, key, value, bias, dropout_rate, scale)

        return self.linear_out(heads.transpose(1, 2).flatten(2))

    def attend_memory(
        self, x: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Let x (B, T, D) attend over a memory that `project_memory` projected -> (B, T, D)."""
        query = self.split_heads(self.linear_q(x))
        return self.attend(query, self.spread(key), self.spread(value), bias)

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply self-attention.

        Args:
            x: (B, T, D).
            bias: added to the scores, broadcasts to (B, H, T, K); None: every frame sees every
                frame.
            pos_emb: (1, K, D), used by RelPositionMultiHeadedAttention only.
            past: (B, G, C, 2 d) keys and values of the C frames before x, so K = C + T; None
                outside of streaming.

        Returns:
            (B, T, D), and keys and values of the past and of x: (B, G, K, 2 d), or None outside of
            streaming.
        """
        key, value, present = self.remember(x, past)
        return self.attend_memory(x, key, value, bias), present

    def remember(
        self, x: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Append the keys and values of x (B, T, D) to those of `past`.

        Returns:
            Keys and values (B, G, K, d), and both in one tensor (B, G, K, 2 d), or None without a
            past.
        """
        key, value = self.project_memory(x)
        return self.append(key, value, past)

    def append(
        self, key: torch.Tensor, value: torch.Tensor, past: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Append keys and values (B, G, T, d) to those of `past`; returns as `remember`."""
        if past is None:
            return key, value, None
        newest = torch.cat((key, value), dim=3)  # (B, G, T, 2 d)
        present = torch.cat((past, newest), dim=2)  # (B, G, K, 2 d)
        return present[..., : self.head_dim], present[..., self.head_dim :], present


class RelPositionMultiHeadedAttention(MultiHeadedAttention):
    """Self-attention with learned biases for content (u) and position (v), as in Transformer-XL but
    without its shift.

    The score of query i and key j is (q_i + u) k_j + (q_i + v) p_j. Because p depends only on the
    key, this equals (q_i + u) (k_j + p_j) + (v - u) p_j. So positions are added to the keys, and
    the second term is one number per head and key. It is a bias, or a feature of the keys (see
    `with_term`).
    """

    def __init__(self, dim: int, dropout_rate: float, conf: AttentionConf) -> None:
        super().__init__(dim, dropout_rate, conf)
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(self.heads, self.head_dim))
        self.pos_bias_v = nn.Parameter(torch.empty(self.heads, self.head_dim))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
        padded: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply self-attention to x (B, T, D) -> (B, T, D), and keys and values for the next chunk.

        `pos_emb` (1, K, D) has the positions of the keys; `padded` is of a subclass. The score of
        query q, key k and position p is (q + u) (k + p) + (v - u) p, times d ** -0.5.
        """
        key, value, present = self.remember(x, past)
        position = self.split_heads(self.linear_pos(pos_emb))  # (1, H, K, d)
        term = torch.matmul(position, (self.pos_bias_v - self.pos_bias_u).unsqueeze(2))
        query = self.split_heads(self.linear_q(x) + self.pos_bias_u.flatten())
        key, value = self.spread(key) + position, self.spread(value)
        if self.needs_bias_without_gradient(x):
            query, key = with_term(query, key, term)
            return self.attend(query, key, value, bias, self.head_dim**-0.5), present

        position_bias = term.transpose(2, 3) * self.head_dim**-0.5  # (1, H, 1, K)
        if bias is not None:
            position_bias = position_bias + bias

        return self.attend(query, key, value, position_bias), present

    def needs_bias_without_gradient(self, x: torch.Tensor) -> bool:
        """Tell whether an accelerator trains: a bias with a gradient keeps it from its fast
        kernels.
        """
        return self.training and x.device.type != "cpu"


class ShiftedRelPositionMultiHeadedAttention(RelPositionMultiHeadedAttention):
    """Relative attention with the shift of Transformer-XL over positions 0 .. K - 1, as in WeNet's
    squeezeformer.

    For j <= i, the position of query i and key j in an utterance of K frames is (K - 1) - (i - j).
    """

    def __init__(self, dim: int, dropout_rate: float, conf: AttentionConf) -> None:
        super().__init__(dim, dropout_rate, conf)
        self.masks_padding = True

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
        padded: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply self-attention to x (B, T, D) -> (B, T, D), and keys and values for the next chunk.

        Args:
            bias: added to the scores, broadcasts to (B, H, T, K).
            pos_emb: (1, P, D) position encodings; P is K, or more for distances in both directions.
            past: keys and values of the frames before x.
            padded: (B, T, 1) bool, True where x is padding. With `masks_padding` positions count
                from the end of each utterance, not from the end of the batch. None: no padding.
        """
        key, value, present = self.remember(x, past)
        position = self.split_heads(self.linear_pos(pos_emb))  # (1, H, P, d)
        projected = self.project_query(x)

        # The scores of positions are a bias of the scores of contents.
        position_query = self.split_heads(projected + self.pos_bias_v.flatten())
        position_scores = torch.matmul(position_query, position.transpose(2, 3))  # (B, H, T, P)
        shifted = self.shift(position_scores, padded)
        shifted = shifted[:, :, :, : key.size(2)] * self.head_dim**-0.5  # (B, H, T, K)
        if bias is not None:
            shifted = shifted + bias

        query = self.split_heads(projected + self.pos_bias_u.flatten())
        return self.attend(query, self.spread(key), self.spread(value), shifted), present

    def project_query(self, x: torch.Tensor) -> torch.Tensor:
        """Project x (B, T, D) to the queries of all heads (B, T, H * d)."""
        return self.linear_q(x)

    def shift(self, scores: torch.Tensor, padded: torch.Tensor | None = None) -> torch.Tensor:
        """Shift each row of scores (B, H, Q, K) one place further to the left than the row below
        (Dai et al. 2019).
        """
        # With a zero in front, each row is one longer. Cut into rows of the old length from number
        # `queries` on, row i begins at score K - 1 - i of query i, and goes over into the next row.
        queries, keys = scores.size(2), scores.size(3)
        flat = pad(scores, (1, 0)).flatten(2)
        if padded is None or not self.masks_padding:
            return flat[:, :, queries:].view(scores.shape)

        # An utterance of L < K frames: its scores of keys j <= i begin at L - 1 - i instead, as they
        # would without the padding. Other keys are later than the query, and read as in the batch.
        place = torch.arange(keys, device=scores.device)
        lengths = (~padded).sum(dim=1).unsqueeze(2)  # (B, 1, 1)
        is_past = place.unsqueeze(1) >= place
        row_starts = torch.where(is_past, lengths, torch.full_like(lengths, keys))
        sources = row_starts + place.unsqueeze(1) * keys + place  # (B, Q, K), numbers in `flat`
        sources = sources.flatten(1).unsqueeze(1).expand(-1, scores.size(1), -1)  # (B, H, Q * K)

        return flat.gather(2, sources).view(scores.shape)


class FireredAttention(ShiftedRelPositionMultiHeadedAttention):
    """Relative attention over distances in both directions, with a normalisation each for queries,
    keys and values.

    pos_emb (1, 2 K - 1, D) has the distances K - 1 .. 1 - K.
    """

    def __init__(self, dim: int, dropout_rate: float, conf: AttentionConf) -> None:
        super().__init__(dim, dropout_rate, conf)
        self.layer_norm_q = nn.LayerNorm(dim)
        self.layer_norm_k = nn.LayerNorm(dim)
        self.layer_norm_v = nn.LayerNorm(dim)
        self.masks_padding = False  # distances do not depend on the end of an utterance

    def project_memory(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Project memory (B, T, D) to keys and values (B, G, T, d), with a norm before each."""
        key = self.linear_k(self.layer_norm_k(memory))
        value = self.linear_v(self.layer_norm_v(memory))
        return self.split_heads(key), self.split_heads(value)

    def project_query(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x (B, T, D), and project it to the queries of all heads (B, T, H * d)."""
        return self.linear_q(self.layer_norm_q(x))


MOST_LEFT, MOST_RIGHT = 64, 8
"""Distances in frames beyond which all keys have the same embedding."""


class ShawMultiHeadedAttention(MultiHeadedAttention):
    """Self-attention; the score of query q_i and key k_j is q_i (k_j + r_(j - i))."""

    def __init__(self, dim: int, dropout_rate: float, conf: AttentionConf) -> None:
        super().__init__(dim, dropout_rate, conf)
        # TorchScript reads no constants of a module.
        self.most_left, self.most_right = MOST_LEFT, MOST_RIGHT
        self.rel_k_embed = nn.Embedding(MOST_LEFT + MOST_RIGHT + 1, self.head_dim)

    def forward(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        past: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply self-attention to x (B, T, D) -> (B, T, D), and keys and values for the next chunk.

        The products of queries and embedded distances are a bias of the scores.
        """
        key, value, present = self.remember(x, past)
        keys = key.size(2)
        place = torch.arange(keys, device=x.device)
        query_place = place[keys - x.size(1) :]  # the T frames of x are the last of the K keys
        distance = place.unsqueeze(0) - query_place.unsqueeze(1)  # (T, K)
        clamped = distance.clamp(-self.most_left, self.most_right)
        embedded = self.rel_k_embed(clamped + self.most_left)  # (T, K, d)
        query = self.split_heads(self.linear_q(x))
        scores = torch.einsum("bhtd,tkd->bhtk", query, embedded) * self.head_dim**-0.5
        if bias is not None:
            scores = scores + bias

        return self.attend(query, self.spread(key), self.spread(value), scores), present


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Turn the points (first, second) by angles, where the first half of the channels x (B, H, T, d)
    is one coordinate and the second half the other; angles (1, T, d / 2, 2) are cosines and sines.
    """
    first, second = x.chunk(2, dim=3)  # (B, H, T, d / 2) each
    cosine, sine = angles[..., 0].unsqueeze(1), angles[..., 1].unsqueeze(1)  # (1, 1, T, d / 2)
    turned_first = first * cosine - second * sine
    turned_second = second * cosine + first * sine
    return torch.cat((turned_first, turned_second), dim=3)


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


LEAST_BLOCK = 64
"""Least number of queries that are computed together."""


def context_with_block(context: tuple[int, int]) -> tuple[int, int, int]:
    """Return the limits left and right, and the number of queries in a block: a larger block computes
    more scores that nobody sees.
    """
    before, after = context
    return before, after, max(LEAST_BLOCK, before + after)


@torch.jit.script_if_tracing
def attended_nearby(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    context: tuple[int, int, int],
    rate: float,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend with queries (B, H, Q, d) to the keys and values (B, H, K, d) around each -> (B, H, Q,
    d).

    Blocks of neighbouring queries are computed one after another, each with the keys that its
    queries see. So with two limits the scores take memory for one block, whatever the length.

    Args:
        bias: added to the scores, broadcasts to (B, H, 1, K); None: nothing.
        context: number of keys that a query sees before its own, and after it; negative: all. The
            last query and the last key belong together. The third number is that of the queries of
            a block.
        rate: share of the weights of attention that is dropped.
        scale: as in `attended`.
    """
    left, right, block = context
    queries, keys = query.size(2), key.size(2)
    keys_before = keys - queries  # keys before that of the first query
    places = torch.arange(keys, device=query.device)
    blocks: list[torch.Tensor] = []

    for start in range(0, queries, block):
        end = min(start + block, queries)
        # The keys from number `first` up to `last` that any query of the block sees.
        first = 0 if left < 0 else max(keys_before + start - left, 0)
        last = keys if right < 0 else min(keys_before + end + right, keys)
        query_places = places[keys_before + start : keys_before + end]
        distance = places[first:last] - query_places.unsqueeze(1)  # (block, keys of the block)
        seen = torch.ones_like(distance, dtype=torch.bool)
        if left >= 0:
            seen = seen & (distance >= -left)
        if right >= 0:
            seen = seen & (distance <= right)

        block_bias = additive(seen.unsqueeze(0), query.dtype)
        if bias is not None:
            block_bias = block_bias + bias[:, :, :, first:last]

        block_query = query[:, :, start:end]
        block_key, block_value = key[:, :, first:last], value[:, :, first:last]
        blocks.append(attended(block_query, block_key, block_value, block_bias, rate, scale))

    # The ONNX exporter does not know how many dimensions a concatenated list has.
    return torch.cat(blocks, dim=2).view(query.size(0), query.size(1), queries, value.size(3))


SELF_ATTENTIONS: dict[str, type[MultiHeadedAttention]] = {
    "selfattn": MultiHeadedAttention,
    "rel_selfattn": RelPositionMultiHeadedAttention,
    "rope_abs_selfattn": RotaryMultiHeadedAttention,
    "firered_rel_selfattn": FireredAttention,
    "shaw_rel_selfattn": ShawMultiHeadedAttention,
}


def self_attention(conf: EncoderConf) -> MultiHeadedAttention:
    """Build the attention module `conf.selfattention_layer_type`."""
    attention = SELF_ATTENTIONS[conf.selfattention_layer_type]
    return attention(conf.output_size, conf.attention_dropout_rate, conf)
