"""Encoders: features -> encoder frames, for a whole batch or chunk by chunk."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from wenet_uio.config.model import ConformerEncoderConf, EncoderConf, TransformerEncoderConf
from wenet_uio.models.embedding import POSITION_ENCODINGS
from wenet_uio.models.encoder_layer import ConformerEncoderLayer, TransformerEncoderLayer
from wenet_uio.models.masks import additive, chunk_mask, draw_chunk, length_mask
from wenet_uio.models.subsampling import INPUT_LAYERS


class Encoder(nn.Module):
    """CMVN, input layer, then a stack of layers with one interface (see encoder_layer.py).

    `causal`: whether chunk by chunk gives what one pass with a chunk mask gives. `cnn_cache_frames`: frames that the
    convolution of each layer remembers between chunks.
    """

    def __init__(
        self, input_size: int, conf: EncoderConf, layers: list[nn.Module], global_cmvn: nn.Module | None
    ) -> None:
        super().__init__()
        self.global_cmvn = global_cmvn
        pos_enc = POSITION_ENCODINGS[conf.pos_enc_layer_type](conf.output_size, conf.positional_dropout_rate)
        self.embed = INPUT_LAYERS[conf.input_layer](input_size, conf.output_size, conf.dropout_rate, pos_enc)
        self.normalize_before = conf.normalize_before
        self.after_norm = nn.LayerNorm(conf.output_size, eps=conf.norm_eps)
        self.encoders = nn.ModuleList(layers)
        self.output_size = conf.output_size
        self.heads = conf.attention_heads
        self.use_dynamic_chunk = conf.use_dynamic_chunk
        self.use_dynamic_left_chunk = conf.use_dynamic_left_chunk
        self.static_chunk_size = conf.static_chunk_size
        self.gradient_checkpointing = conf.gradient_checkpointing
        self.causal = True
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
        lengths = self.embed.output_lengths(feats_lengths)
        valid = length_mask(lengths, x.size(1))
        bias = additive(self._attention_mask(valid, chunk_size, num_left_chunks), x.dtype)
        padded = ~valid.unsqueeze(2)
        for layer in self.encoders:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, bias, pos_emb, padded, use_reentrant=False)[0]
            else:
                x = layer(x, bias, pos_emb, padded)[0]
        if self.normalize_before:
            x = self.after_norm(x)
        return x, lengths

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
            cnn_cache: (layers, 1, D, kernel - 1) input of the convolutions; (0, 0, 0, 0) at the start.
            att_mask: (1, 1, C + chunk or more) bool, False for what is in att_cache but was never heard: runtimes with
                a cache of one size need it at the start. None: all was heard.

        Returns:
            (1, chunk, D) and both caches for the next chunk.
        """
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)
        x, _ = self.embed(xs, offset)
        cached = att_cache.size(2)
        seen = cached + x.size(1)
        pos_emb = self.embed.position_encoding(offset - cached, seen, x)
        forget = 0
        if required_cache_size >= 0:
            forget = max(seen - required_cache_size, 0)

        bias: torch.Tensor | None = None
        if att_mask is not None:
            bias = additive(att_mask[:, :, :seen], x.dtype)

        att_pasts: list[torch.Tensor] = []
        cnn_pasts: list[torch.Tensor] = []
        no_att_past = torch.zeros(1, self.heads, 0, 2 * self.output_size // self.heads, dtype=x.dtype, device=x.device)
        no_cnn_past = torch.zeros(1, self.output_size, self.cnn_cache_frames, dtype=x.dtype, device=x.device)
        for i, layer in enumerate(self.encoders):
            att_past = no_att_past if att_cache.size(0) == 0 else att_cache[i : i + 1]
            cnn_past = no_cnn_past if cnn_cache.size(0) == 0 else cnn_cache[i]
            x, att_present, cnn_present = layer(x, bias, pos_emb, None, att_past, cnn_past)
            if att_present is not None:
                att_pasts.append(att_present[:, :, forget:])
            if cnn_present is not None:
                cnn_pasts.append(cnn_present)
        if self.normalize_before:
            x = self.after_norm(x)
        return x, torch.cat(att_pasts), torch.stack(cnn_pasts)

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
        super().__init__(input_size, conf, layers, global_cmvn)


class ConformerEncoder(Encoder):
    """Gulati et al. 2020, with dynamic chunks as in U2 (Zhang et al. 2020)."""

    def __init__(self, input_size: int, conf: ConformerEncoderConf, global_cmvn: nn.Module | None = None) -> None:
        layers: list[nn.Module] = [ConformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        super().__init__(input_size, conf, layers, global_cmvn)
        self.causal = conf.causal or not conf.use_cnn_module
        self.cnn_cache_frames = conf.cnn_module_kernel - 1 if conf.use_cnn_module and conf.causal else 0


ENCODERS: dict[str, type[Encoder]] = {"transformer": TransformerEncoder, "conformer": ConformerEncoder}
