"""Attention decoders: tokens so far and encoder frames -> scores of the next token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from wenet_uio.config.model import BiTransformerDecoderConf, DecoderConf
from wenet_uio.models.attention import MultiHeadedAttention
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.embedding import (
    LEARNED_POSITIONS,
    LearnedPositionalEncoding,
    PositionalEncoding,
)
from wenet_uio.models.layer_parts import build_feed_forward, build_norm, recomputed
from wenet_uio.models.masks import additive, causal_mask, length_mask


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
        x = self._add_attended(x, self.self_attn.attend_memory(normed, key, value, bias))

        source_key, source_value = self.src_attn.project_memory(memory)
        return self._attend_to_source(x, source_key, source_value, memory_bias)

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
        # Each hypothesis has its own past, so it is a batch row with one token: (B * K, 1, D).
        token = normed.flatten(0, 1).unsqueeze(1)
        key, value, present = self.self_attn.remember(token, past)
        assert present is not None
        attended = self.self_attn.attend_memory(token, key, value, None)
        x = self._add_attended(x, attended.view(x.shape))

        source_key, source_value = source
        return self._attend_to_source(x, source_key, source_value, memory_bias), present

    def _add_attended(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Add the output of the self-attention to its input x, both (B, U, D)."""
        x = x + self.dropout(attended)
        return x if self.normalize_before else self.norm1(x)

    def _attend_to_source(
        self, x: torch.Tensor, key: torch.Tensor, value: torch.Tensor, memory_bias: torch.Tensor
    ) -> torch.Tensor:
        """Attend to the encoder, and run the feed-forward module: (B, U, D) -> (B, U, D)."""
        normed = self.norm2(x) if self.normalize_before else x
        x = x + self.dropout(self.src_attn.attend_memory(normed, key, value, memory_bias))
        if not self.normalize_before:
            x = self.norm2(x)

        normed = self.norm3(x) if self.normalize_before else x
        x = x + self.dropout(self.feed_forward(normed))
        return x if self.normalize_before else self.norm3(x)


class DecoderState(NamedTuple):
    """State of the decoder between two tokens, for B utterances with K hypotheses each."""

    source: list[tuple[torch.Tensor, torch.Tensor]]
    """For each layer: keys and values (B, H, T, D / H) of the encoder frames."""
    memory_bias: torch.Tensor
    """(B, 1, 1, T), added to the scores of the encoder frames."""
    past: list[torch.Tensor]
    """For each layer: keys and values (B * K, H, U, 2 D / H) of the U tokens so far."""

    def reorder(self, parents: torch.Tensor) -> DecoderState:
        """Return the state in which hypothesis k of utterance b continues hypothesis parents[b, k];
        parents (B, K2).
        """
        batch = parents.size(0)
        hypotheses = self.past[0].size(0) // batch
        # Rows of `past`: those of utterance b begin at b * K.
        first_rows = torch.arange(batch, device=parents.device).unsqueeze(1) * hypotheses
        rows = (parents + first_rows).flatten()
        return self._replace(past=[past.index_select(0, rows) for past in self.past])


def reversed_hypotheses(hyps: torch.Tensor, lengths: torch.Tensor, eos: int) -> torch.Tensor:
    """Reverse token sequences for the right-to-left decoder: `sos a b c pad` becomes `sos c b a
    eos`.

    Args:
        hyps: (N, U) tokens after a first sos.
        lengths: (N,) numbers of tokens, sos included.
        eos: label that replaces padding.
    """
    sos, tokens = hyps[:, :1], hyps[:, 1:]
    count = (lengths - 1).unsqueeze(1)  # (N, 1)
    place = torch.arange(tokens.size(1), device=hyps.device).unsqueeze(0)  # (1, U - 1)
    is_token = place < count  # (N, U - 1)

    sources = torch.where(is_token, count - 1 - place, torch.zeros_like(place))
    backward = torch.gather(tokens, 1, sources)
    backward = torch.where(is_token, backward, torch.full_like(backward, eos))
    return torch.cat((sos, backward), dim=1)


class Decoder(nn.Module):
    """Base class of the decoders; their `forward` has the signature of TransformerDecoder.forward.

    `max_tokens`: most tokens, sos included, that the decoder has positions for; None: any number.
    """

    @torch.jit.export
    def score_hypotheses(
        self,
        hyps: torch.Tensor,
        hyps_lens: torch.Tensor,
        encoder_out: torch.Tensor,
        eos: int,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the hypotheses of one utterance.

        Args:
            hyps: (N, U) tokens after a first sos.
            hyps_lens: (N,) numbers of tokens, sos included.
            encoder_out: (1, T', D) without padding.
            eos: label that ends every hypothesis.
            reverse_weight: 0: do not run the right-to-left decoder.

        Returns:
            Log-probabilities (N, U, V) of the token after each token, and the same of the
            right-to-left decoder, or zeros (1,) if that decoder does not exist or does not run.
        """
        count, frames = hyps.size(0), encoder_out.size(1)
        memory = encoder_out.expand(count, -1, -1)
        memory_mask = torch.ones(count, 1, frames, dtype=torch.bool, device=memory.device)
        backward = reversed_hypotheses(hyps, hyps_lens, eos)
        forward_logits, backward_logits = self.forward(
            memory, memory_mask, hyps, hyps_lens, backward, reverse_weight
        )

        forward_scores = forward_logits.float().log_softmax(dim=-1)
        backward_scores = backward_logits.float().log_softmax(dim=-1)
        return forward_scores, backward_scores


class TransformerDecoder(Decoder):
    """Left-to-right decoder (Vaswani et al. 2017)."""

    bidirectional = False

    def __init__(self, vocab_size: int, dim: int, conf: DecoderConf) -> None:
        super().__init__()
        embedding = nn.Embedding(vocab_size, dim)
        learns_positions = conf.input_layer == "embed_learnable_pe"
        positions = LearnedPositionalEncoding if learns_positions else PositionalEncoding
        self.embed = nn.Sequential(embedding, positions(dim, conf.positional_dropout_rate))
        self.max_tokens: int | None = LEARNED_POSITIONS if learns_positions else None
        self.after_norm = build_norm(dim, conf)
        self.output_layer = nn.Linear(dim, vocab_size)
        if conf.tie_word_embedding:
            self.output_layer.weight = embedding.weight

        self.decoders = nn.ModuleList([DecoderLayer(dim, conf) for _ in range(conf.num_blocks)])
        self.key_heads = conf.key_heads
        self.head_dim = conf.head_dim or dim // conf.attention_heads
        self.normalize_before = conf.normalize_before
        self.gradient_checkpointing = conf.gradient_checkpointing

    def forward(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
        r_ys_in_pad: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the next token after each of the given tokens.

        Args:
            memory: (B, T, D) encoder frames.
            memory_mask: (B, 1, T) bool, True within the length.
            ys_in_pad: (B, U) tokens after a first sos.
            ys_in_lens: (B,) numbers of tokens, sos included.
            r_ys_in_pad: (B, U) reversed tokens after a first sos; used by BiTransformerDecoder
                only.
            reverse_weight: 0: do not run the right-to-left decoder.

        Returns:
            Logits (B, U, V) of the token after each token, and the same of the right-to-left
            decoder or zeros (1,).
        """
        logits = self.score(memory, memory_mask, ys_in_pad, ys_in_lens)
        return logits, torch.zeros(1, device=memory.device)

    @torch.jit.export
    def score(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
    ) -> torch.Tensor:
        """Return logits (B, U, V) of this decoder alone; arguments as in `forward`."""
        size = ys_in_pad.size(1)
        x, _ = self.embed(ys_in_pad)  # (B, U, D)
        mask = length_mask(ys_in_lens, size).unsqueeze(1) & causal_mask(size, ys_in_pad.device)
        bias = additive(mask, x.dtype)  # (B, 1, U, U)
        memory_bias = additive(memory_mask, x.dtype)  # (B, 1, 1, T)

        for layer in self.decoders:
            # torch documents is_scripting, but torch.jit.__all__ does not list it.
            if (
                not torch.jit.is_scripting()  # pyright: ignore[reportPrivateImportUsage]
                and self.gradient_checkpointing
                and self.training
            ):
                x = recomputed(layer, x, bias, memory, memory_bias)
            else:
                x = layer(x, bias, memory, memory_bias)

        return self._project_to_logits(x)

    def _project_to_logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits (B, U, V) of the output of the last layer (B, U, D)."""
        if self.normalize_before:
            x = self.after_norm(x)
        return self.output_layer(x)

    @torch.jit.unused
    def start(self, memory: torch.Tensor, memory_mask: torch.Tensor) -> DecoderState:
        """Prepare B utterances for `forward_one_step`: memory (B, T, D), memory_mask (B, 1, T)
        bool.
        """
        source = [layer.src_attn.project_memory(memory) for layer in self._layers()]
        memory_bias = additive(memory_mask, memory.dtype)
        no_tokens = memory.new_zeros(memory.size(0), self.key_heads, 0, 2 * self.head_dim)
        return DecoderState(source, memory_bias, past=[no_tokens] * len(self.decoders))

    @torch.jit.unused
    def forward_one_step(
        self, state: DecoderState, tokens: torch.Tensor
    ) -> tuple[torch.Tensor, DecoderState]:
        """Add one token to every hypothesis.

        Args:
            state: from `start`, an earlier step, or `DecoderState.reorder`.
            tokens: (B, K) the newest token of each hypothesis; sos (B, 1) in the first step.

        Returns:
            Log-probabilities (B, K, V) of the next token, and the state that includes `tokens`.
        """
        embedding, positions = self.embed
        tokens_before = state.past[0].size(2)
        x, _ = positions(embedding(tokens.reshape(-1, 1)), tokens_before)  # (B * K, 1, D)
        x = x.view(tokens.size(0), tokens.size(1), -1)
        pasts: list[torch.Tensor] = []
        for layer, past, source in zip(self._layers(), state.past, state.source, strict=True):
            x, extended_past = layer.forward_one_step(x, past, source, state.memory_bias)
            pasts.append(extended_past)

        log_probs = self._project_to_logits(x).float().log_softmax(dim=-1)
        return log_probs, state._replace(past=pasts)

    @torch.jit.unused
    def _layers(self) -> Iterator[DecoderLayer]:
        """Yield the layers with their type, which nn.ModuleList hides."""
        for layer in self.decoders:
            assert isinstance(layer, DecoderLayer)
            yield layer


class BiTransformerDecoder(Decoder):
    """A left-to-right and a right-to-left decoder over the same encoder frames (U2++, Wu et al.
    2021).
    """

    bidirectional = True

    def __init__(self, vocab_size: int, dim: int, conf: BiTransformerDecoderConf) -> None:
        super().__init__()
        self.left_decoder = TransformerDecoder(vocab_size, dim, conf)
        self.right_decoder = TransformerDecoder(
            vocab_size, dim, conf.model_copy(update={"num_blocks": conf.r_num_blocks})
        )
        self.max_tokens = self.left_decoder.max_tokens

    def forward(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
        r_ys_in_pad: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the next token in both directions; arguments as in TransformerDecoder.forward."""
        forward_logits = self.left_decoder.score(memory, memory_mask, ys_in_pad, ys_in_lens)
        backward_logits = torch.zeros(1, device=memory.device)
        if reverse_weight > 0.0:
            backward_logits = self.right_decoder.score(memory, memory_mask, r_ys_in_pad, ys_in_lens)
        return forward_logits, backward_logits

    @torch.jit.unused
    def start(self, memory: torch.Tensor, memory_mask: torch.Tensor) -> DecoderState:
        """Prepare B utterances for `forward_one_step` of the left-to-right decoder."""
        return self.left_decoder.start(memory, memory_mask)

    @torch.jit.unused
    def forward_one_step(
        self, state: DecoderState, tokens: torch.Tensor
    ) -> tuple[torch.Tensor, DecoderState]:
        """Add one token (B, K) to every hypothesis of the left-to-right decoder."""
        return self.left_decoder.forward_one_step(state, tokens)


DECODERS: dict[str, Callable[[int, int, Any], TransformerDecoder | BiTransformerDecoder]] = {
    "transformer": TransformerDecoder,
    "bitransformer": BiTransformerDecoder,
}
"""{name in the yaml: class, called with vocabulary size, width, and the section class of that
name}."""
