"""Encoders: features -> encoder frames, for a whole batch or chunk by chunk.

An encoder consists of global CMVN, an input layer, and a stack of layers. This file has the
transformer and conformer encoders; branchformer.py and squeezeformer.py have the others.
encoder_layer.py describes the interface of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config.encoder import EncoderConf
from wenet_uio.models.chunks import Caches, ChunkEncoder, frames_to_forget, joined_caches
from wenet_uio.models.inter_ctc import InterCtc
from wenet_uio.models.masks import ALL_FRAMES, additive, chunk_mask, draw_chunk, length_mask
from wenet_uio.models.norm import build_norm
from wenet_uio.models.recompute import recomputed
from wenet_uio.models.subsampling import Subsampling

SEES_FUTURE = "this model's convolution sees future frames; train with causal: true"


class Encoder(nn.Module):
    """CMVN, input layer, then a stack of layers with a common interface (see encoder_layer.py).

    `obstacle`: the reason why streaming differs from one pass with a chunk mask; empty if the model
    can stream. `heads`, `head_dim`: number and width of the heads of keys and values, as caches
    hold them. `output_size`: width of the encoder frames; `width`: width of the layers.
    `cnn_cache_frames`: a layer's convolutions keep (B, width, cnn_cache_frames) between chunks.
    `batches_chunks`: whether `forward_chunks` can encode chunks of several streams together.
    `reduction`: factor by which the layers lower the frame rate; `chunk_divisor`: one that chunks
    of streams need. `chunk_unit`: streaming equals one pass for chunks that are a multiple of this
    number of input layer frames. `drop_rates`: share of the training batches that skip each layer.
    `strides`: factor by which each layer lowers the frame rate. `reductions`: factor by which the
    frame rate after each layer is below that of the input layer. `inter_ctc`: what happens after
    some of the blocks; None: nothing. `masks_padding`: the frames of an utterance do not depend on
    its batch; False: as in WeNet, they may.
    """

    inter_ctc = cast("InterCtc | None", None)  # TorchScript reads annotations of a class

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
        self.after_norm: nn.Module = build_norm(conf.output_size, conf).requires_grad_(
            normalize_before
        )
        self.encoders = nn.ModuleList(layers)
        self.output_size = self.width = conf.output_size
        self.heads = conf.key_heads
        self.head_dim = conf.head_dim or conf.output_size // conf.attention_heads
        self.use_dynamic_chunk = conf.use_dynamic_chunk
        self.use_dynamic_left_chunk = conf.use_dynamic_left_chunk
        self.static_chunk_size = conf.static_chunk_size
        self.gradient_checkpointing = conf.gradient_checkpointing
        self.drop_rates = [0.0] * len(layers)
        self.obstacle = embed.obstacle
        self.cnn_cache_frames = 0
        self.batches_chunks = self.masks_padding = True
        self.reduction = self.chunk_unit = self.chunk_divisor = 1
        self.strides = [1] * len(layers)
        self.reductions = [1] * len(layers)

    @torch.jit.unused
    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        chunk_size: int = -1,
        num_left_chunks: int = -1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode a batch.

        In training, a model with dynamic chunks draws chunk size and left chunks and ignores the
        arguments.

        Args:
            feats: (B, T, F), padded.
            feats_lengths: (B,) frames.
            chunk_size: frames of the input layer in a chunk; negative: full context; ALL_FRAMES: in
                training too.
            num_left_chunks: chunks seen before the current chunk; negative: all.

        Returns:
            Encoder frames (B, T', D), zeros beyond the lengths, and lengths (B,).
        """
        # Shorter than one window: the lengths become 0
        if feats.size(1) <= self.embed.right_context:
            window = (0, self.embed.right_context + 1 - feats.size(1))
            # Ids (B, T) have no features
            feats = pad(feats, (0, 0, *window) if feats.dim() == 3 else window)

        if self.global_cmvn is not None:
            feats = self.global_cmvn(feats)

        x, pos_emb, lengths = self.embed.forward_batch(feats, feats_lengths)
        valid = length_mask(lengths, x.size(1))
        bias = additive(self._attention_mask(valid, chunk_size, num_left_chunks), x.dtype)
        x = self._blocks(x, bias, pos_emb, ~valid.unsqueeze(2))
        lengths = torch.div(lengths + self.reduction - 1, self.reduction, rounding_mode="floor")
        if self.masks_padding:
            x = x.masked_fill(~length_mask(lengths, x.size(1)).unsqueeze(2), 0.0)

        return x, lengths

    @torch.jit.unused
    def _blocks(
        self, x: torch.Tensor, bias: torch.Tensor, pos_emb: torch.Tensor, padded: torch.Tensor
    ) -> torch.Tensor:
        """Apply all layers to whole utterances; arguments as in encoder_layer.py."""
        for place in range(len(self.encoders)):
            x = self._block(place, x, bias, pos_emb, padded)
        return self.after_norm(x) if self.normalize_before else x

    @torch.jit.unused
    def _block(
        self,
        place: int,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
    ) -> torch.Tensor:
        """Apply layer `place`, and what `inter_ctc` does after it."""
        x = self._layer(place, x, bias, pos_emb, padded)
        return x if self.inter_ctc is None else self.inter_ctc.after(self, place, x, padded)

    @torch.jit.unused
    def _layer(
        self,
        place: int,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
    ) -> torch.Tensor:
        """Apply layer `place`. Training may skip the layer, or compute its activations again to
        save memory.
        """
        layer = self.encoders[place]
        if (
            self.training
            and self.drop_rates[place] > 0.0
            and bool(torch.rand(()) < self.drop_rates[place])
        ):
            # All ranks exchange all gradients, so a skipped layer needs gradients too: zeros.
            return x + 0.0 * sum(
                weight.sum() for weight in layer.parameters() if weight.requires_grad
            )

        if self.gradient_checkpointing and self.training:
            return recomputed(layer, x, bias, pos_emb, padded)[0]

        return layer(x, bias, pos_emb, padded)[0]

    @torch.jit.unused
    def _attention_mask(
        self, valid: torch.Tensor, chunk_size: int, num_left_chunks: int
    ) -> torch.Tensor:
        """Valid frames (B, T) -> attention mask (B, 1, T), or (B, T, T) with chunks."""
        size = valid.size(1)
        if self.use_dynamic_chunk and self.training and chunk_size != ALL_FRAMES:
            chunk_size, num_left_chunks = draw_chunk(size, self.use_dynamic_left_chunk)
        elif self.static_chunk_size > 0 and chunk_size != ALL_FRAMES:
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
            xs: (1, T, F); T = (chunk - 1) * subsampling_rate + right_context + 1 frames give
                `chunk` encoder frames.
            offset: number of encoder frames before this chunk.
            required_cache_size: encoder frames to keep for the next chunk; negative: all, 0: none.
            att_cache: (layers, H, C, 2 D / H) keys and values of the C frames before; (0, 0, 0, 0)
                at the start.
            cnn_cache: (layers, 1, D, cnn_cache_frames) past input of the convolutions; a conformer
                keeps kernel - 1 frames. (0, 0, 0, 0) at the start.
            att_mask: (1, 1, C + chunk or more) bool, False for entries of att_cache that hold no
                frame yet. Runtimes whose cache has a fixed size need this mask at the start of an
                utterance. None: all entries hold frames.

        Returns:
            Encoder frames (1, chunk, D), and both caches for the next chunk.
        """
        x, pos_emb, att_cache, cnn_cache = self._begin_chunk(xs, offset, att_cache, cnn_cache)
        forget = frames_to_forget(pos_emb.size(1), required_cache_size)
        bias: torch.Tensor | None = None
        if att_mask is not None:
            bias = additive(att_mask[:, :, : pos_emb.size(1)], x.dtype)

        x, att_pasts, cnn_pasts = self._chunk_blocks(
            x, bias, pos_emb, att_cache.unsqueeze(1), cnn_cache
        )
        return x, torch.cat([past[:, :, forget:] for past in att_pasts]), torch.stack(cnn_pasts)

    def _chunk_blocks(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Apply all layers to a chunk of each of B streams.

        Args:
            att_cache: (layers, B, H, C, 2 D / H).
            cnn_cache: (layers, B, D, cnn_cache_frames).

        Returns:
            Frames (B, T', D), and the pasts of each layer: (B, H, C + T', 2 D / H) and (B, D,
            cnn_cache_frames).
        """
        att_pasts: list[torch.Tensor] = []
        cnn_pasts: list[torch.Tensor] = []
        for i, layer in enumerate(self.encoders):
            x, att_present, cnn_present = layer(x, bias, pos_emb, None, att_cache[i], cnn_cache[i])
            if att_present is not None:
                att_pasts.append(att_present)
            cnn_pasts.append(cnn_cache[i] if cnn_present is None else cnn_present)

        return self.after_norm(x) if self.normalize_before else x, att_pasts, cnn_pasts

    @torch.jit.unused
    def forward_chunks(
        self,
        xs: torch.Tensor,
        offsets: Sequence[int],
        caches: Sequence[Caches],
        keep: Sequence[int],
    ) -> tuple[torch.Tensor, list[Caches]]:
        """Encode one chunk of each of B streams together; equals `forward_chunk` of each.

        Args:
            xs: (B, T, F).
            offsets: (B,) encoder frames of each stream before its chunk.
            caches: of each stream, as forward_chunk returns them; their lengths may differ.
            keep: (B,) `required_cache_size` of each stream.

        Returns:
            Encoder frames (B, chunk, D), and the caches of each stream for its next chunk.
        """
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)

        x = self.embed.project(xs)
        cached = [att_cache.size(2) for att_cache, _ in caches]
        longest = max(cached)
        att_cache, cnn_cache = joined_caches(self, caches, longest)
        pos_emb = torch.cat(
            [
                self.embed.position_encoding(offset - longest, longest + x.size(1), x)
                for offset in offsets
            ]
        )
        x = self.embed.pos_enc.place(x, pos_emb[:, longest:])
        bias: torch.Tensor | None = None

        if min(cached) < longest:
            lengths = torch.tensor(cached, device=x.device).unsqueeze(1) + x.size(1)
            place = torch.arange(longest + x.size(1), device=x.device)
            bias = additive((place >= len(place) - lengths).unsqueeze(1), x.dtype)

        x, att_pasts, cnn_pasts = self._chunk_blocks(x, bias, pos_emb, att_cache, cnn_cache)
        presents: list[Caches] = []
        for row, frames in enumerate(cached):
            seen = frames + x.size(1)
            first = longest - frames + frames_to_forget(seen, keep[row])
            att_cache = torch.stack([past[row, :, first:] for past in att_pasts])
            presents.append((att_cache, torch.stack([past[row : row + 1] for past in cnn_pasts])))

        return x, presents

    def _begin_chunk(
        self, xs: torch.Tensor, offset: int, att_cache: torch.Tensor, cnn_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Prepare the input of the layers.

        Returns:
            Frames (1, T', D), position encodings (1, C + T', D) of cache and chunk, att_cache and
            cnn_cache with all dimensions.
        """
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)

        x, _ = self.embed(xs, offset)
        if att_cache.size(0) == 0:
            att_cache = x.new_zeros(len(self.encoders), self.heads, 0, 2 * self.head_dim)
        if cnn_cache.size(0) == 0:
            cnn_cache = x.new_zeros(len(self.encoders), 1, self.width, self.cnn_cache_frames)

        cached = att_cache.size(2)
        return (
            x,
            self.embed.position_encoding(offset - cached, cached + x.size(1), x),
            att_cache,
            cnn_cache,
        )

    @torch.jit.unused
    def forward_chunk_by_chunk(
        self, feats: torch.Tensor, chunk_size: int, num_left_chunks: int
    ) -> torch.Tensor:
        """Encode one utterance (1, T, F) as a stream of chunks -> (1, T', D).

        The result equals that of `forward` with the same chunks, unless the encoder has an
        `obstacle`.
        """
        return ChunkEncoder(self, chunk_size, num_left_chunks).accept(feats, last=True)
