"""Encoders: features -> encoder frames, for a whole batch or chunk by chunk."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from wenet_uio.config.encoder import ConformerEncoderConf, EncoderConf, TransformerEncoderConf
from wenet_uio.models.embedding import POSITION_ENCODINGS
from wenet_uio.models.encoder_layer import ConformerEncoderLayer, TransformerEncoderLayer
from wenet_uio.models.masks import additive, chunk_mask, draw_chunk, length_mask
from wenet_uio.models.subsampling import INPUT_LAYERS, Subsampling

SEES_FUTURE = "this model's convolution sees future frames; train with causal: true"


def input_layer(input_size: int, conf: EncoderConf) -> Subsampling:
    """What `input_layer` names, with the position encoding that `pos_enc_layer_type` names."""
    pos_enc = POSITION_ENCODINGS[conf.pos_enc_layer_type](conf.output_size, conf.positional_dropout_rate)
    return INPUT_LAYERS[conf.input_layer](input_size, conf.output_size, conf.dropout_rate, pos_enc)


def frames_to_forget(seen: int, required_cache_size: int) -> int:
    """Of `seen` frames the oldest, which the next chunk does not need; a negative `required_cache_size` needs all."""
    return 0 if required_cache_size < 0 else max(seen - required_cache_size, 0)


class Encoder(nn.Module):
    """CMVN, input layer, then a stack of layers with one interface (see encoder_layer.py).

    `obstacle`: why chunk by chunk does not give what one pass with a chunk mask gives; empty where it does.
    `width`, `cnn_cache_frames`: shape of what the convolutions of a layer remember between chunks.
    `drop_rates`: share of the training batches that skip each layer.
    """

    def __init__(
        self,
        embed: Subsampling,
        conf: EncoderConf,
        layers: list[nn.Module],
        global_cmvn: nn.Module | None,
        normalize_before: bool = True,
    ) -> None:
        super().__init__()
        self.global_cmvn = global_cmvn
        self.embed = embed
        self.normalize_before = normalize_before
        self.after_norm: nn.Module = nn.LayerNorm(conf.output_size, eps=conf.norm_eps).requires_grad_(normalize_before)
        self.encoders = nn.ModuleList(layers)
        self.output_size = self.width = conf.output_size
        self.heads = conf.attention_heads
        self.use_dynamic_chunk = conf.use_dynamic_chunk
        self.use_dynamic_left_chunk = conf.use_dynamic_left_chunk
        self.static_chunk_size = conf.static_chunk_size
        self.gradient_checkpointing = conf.gradient_checkpointing
        self.drop_rates = [0.0] * len(layers)
        self.obstacle = ""
        self.cnn_cache_frames = 0

    @torch.jit.unused
    def forward(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor, chunk_size: int = -1, num_left_chunks: int = -1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode a batch.

        In training, a model with dynamic chunks draws chunk size and left chunks and ignores the arguments.

        Args:
            feats: (B, T, F), padded.
            feats_lengths: (B,) frames.
            chunk_size: encoder frames of a chunk; negative: full context.
            num_left_chunks: chunks seen before the present one; negative: all.

        Returns:
            (B, T', D), whose frames beyond an utterance's length mean nothing, and lengths (B,).
        """
        if feats.size(1) <= self.embed.right_context:  # shorter than one window: one frame, of which no length counts
            feats = pad(feats, (0, 0, 0, self.embed.right_context + 1 - feats.size(1)))
        if self.global_cmvn is not None:
            feats = self.global_cmvn(feats)
        x, pos_emb = self.embed(feats)
        lengths = self.embed.output_lengths(feats_lengths, x.size(1))
        valid = length_mask(lengths, x.size(1))
        bias = additive(self._attention_mask(valid, chunk_size, num_left_chunks), x.dtype)
        return self._blocks(x, bias, pos_emb, ~valid.unsqueeze(2)), lengths

    @torch.jit.unused
    def _blocks(self, x: torch.Tensor, bias: torch.Tensor, pos_emb: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
        """All layers, one pass; arguments as those of a layer."""
        for place in range(len(self.encoders)):
            x = self._block(place, x, bias, pos_emb, padded)
        return self.after_norm(x) if self.normalize_before else x

    @torch.jit.unused
    def _block(
        self, place: int, x: torch.Tensor, bias: torch.Tensor, pos_emb: torch.Tensor, padded: torch.Tensor
    ) -> torch.Tensor:
        """One layer as training has it: skipped at its rate, recomputed where memory is short."""
        layer = self.encoders[place]
        if self.training and self.drop_rates[place] > 0.0 and bool(torch.rand(()) < self.drop_rates[place]):
            # All ranks exchange all gradients: those of a layer that is skipped are 0.
            return x + 0.0 * sum(weight.sum() for weight in layer.parameters() if weight.requires_grad)
        if self.gradient_checkpointing and self.training:
            return checkpoint(layer, x, bias, pos_emb, padded, use_reentrant=False)[0]
        return layer(x, bias, pos_emb, padded)[0]

    @torch.jit.unused
    def _attention_mask(self, valid: torch.Tensor, chunk_size: int, num_left_chunks: int) -> torch.Tensor:
        """valid (B, T) -> (B, 1, T), or (B, T, T) with chunks."""
        size = valid.size(1)
        if self.use_dynamic_chunk and self.training:
            chunk_size, num_left_chunks = draw_chunk(size, self.use_dynamic_left_chunk)
        elif self.static_chunk_size > 0:
            chunk_size = self.static_chunk_size
        mask = valid.unsqueeze(1)
        if 0 < chunk_size < size:
            mask = mask & chunk_mask(size, chunk_size, num_left_chunks, valid.device)
        return mask

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
        """Encode one chunk of one utterance.

        Args:
            xs: (1, T, F); T = (chunk - 1) * subsampling_rate + right_context + 1 frames give `chunk` encoder frames.
            offset: encoder frames that came before this chunk.
            required_cache_size: encoder frames to remember for the next chunk; negative: all, 0: none.
            att_cache: (layers, H, C, 2 D / H) keys and values of the C frames before; (0, 0, 0, 0) at the start.
            cnn_cache: (layers, 1, D, cnn_cache_frames) input of the convolutions, for a conformer kernel - 1 frames;
                (0, 0, 0, 0) at the start.
            att_mask: (1, 1, C + chunk or more) bool, False for what is in att_cache but was never heard: runtimes with
                a cache of one size need it at the start. None: all was heard.

        Returns:
            (1, chunk, D) and both caches for the next chunk.
        """
        x, pos_emb, att_cache, cnn_cache = self._begin_chunk(xs, offset, att_cache, cnn_cache)
        forget = frames_to_forget(pos_emb.size(1), required_cache_size)
        bias: torch.Tensor | None = None
        if att_mask is not None:
            bias = additive(att_mask[:, :, : pos_emb.size(1)], x.dtype)
        att_pasts: list[torch.Tensor] = []
        cnn_pasts: list[torch.Tensor] = []
        for i, layer in enumerate(self.encoders):
            x, att_present, cnn_present = layer(x, bias, pos_emb, None, att_cache[i : i + 1], cnn_cache[i])
            if att_present is not None:
                att_pasts.append(att_present[:, :, forget:])
            if cnn_present is not None:
                cnn_pasts.append(cnn_present)
        if self.normalize_before:
            x = self.after_norm(x)
        return x, torch.cat(att_pasts), torch.stack(cnn_pasts)

    def _begin_chunk(
        self, xs: torch.Tensor, offset: int, att_cache: torch.Tensor, cnn_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Input of the layers (1, T', D), positions (1, C + T', D) of what they see, the caches in their full shape."""
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)
        x, _ = self.embed(xs, offset)
        if att_cache.size(0) == 0:
            att_cache = x.new_zeros(len(self.encoders), self.heads, 0, 2 * self.width // self.heads)
        if cnn_cache.size(0) == 0:
            cnn_cache = x.new_zeros(len(self.encoders), 1, self.width, self.cnn_cache_frames)
        cached = att_cache.size(2)
        return x, self.embed.position_encoding(offset - cached, cached + x.size(1), x), att_cache, cnn_cache

    @torch.jit.unused
    def forward_chunk_by_chunk(self, feats: torch.Tensor, chunk_size: int, num_left_chunks: int) -> torch.Tensor:
        """Encode one utterance (1, T, F) as a stream of chunks -> (1, T', D); equals `forward` with these chunks."""
        rate, window = self.embed.subsampling_rate, self.embed.right_context + 1
        att_cache = cnn_cache = feats.new_zeros(0, 0, 0, 0)
        outputs: list[torch.Tensor] = []
        offset = 0
        for start in range(0, feats.size(1) - window + 1, rate * chunk_size):
            chunk = feats[:, start : start + (chunk_size - 1) * rate + window]
            output, att_cache, cnn_cache = self.forward_chunk(
                chunk, offset, chunk_size * num_left_chunks, att_cache, cnn_cache
            )
            outputs.append(output)
            offset += output.size(1)
        return torch.cat(outputs, dim=1) if outputs else feats.new_zeros(1, 0, self.output_size)


class TransformerEncoder(Encoder):
    """Vaswani et al. 2017, behind a convolutional input layer."""

    def __init__(self, input_size: int, conf: TransformerEncoderConf, global_cmvn: nn.Module | None = None) -> None:
        layers: list[nn.Module] = [TransformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        super().__init__(input_layer(input_size, conf), conf, layers, global_cmvn, conf.normalize_before)


class ConformerEncoder(Encoder):
    """Gulati et al. 2020, with dynamic chunks as in U2 (Zhang et al. 2020)."""

    def __init__(self, input_size: int, conf: ConformerEncoderConf, global_cmvn: nn.Module | None = None) -> None:
        layers: list[nn.Module] = [ConformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        super().__init__(input_layer(input_size, conf), conf, layers, global_cmvn, conf.normalize_before)
        self.obstacle = SEES_FUTURE if conf.use_cnn_module and not conf.causal else ""
        self.cnn_cache_frames = conf.cnn_module_kernel - 1 if conf.use_cnn_module and conf.causal else 0
