"""The usual encoder: an input layer and a stack of layers with a common interface.

The layers of a LayeredEncoder have `forward(x, bias, pos_emb, padded, att_past, cnn_past)`:

    x           (B, T, D)
    bias        added to the attention scores, broadcasts to (B, H, T, K); None: every frame sees every frame
    pos_emb     (1, K, D)
    padded      (B, T, 1) bool, True where x is padding; None: no padding
    att_past    (B, H, C, 2 D / H), keys and values of the C frames before x; None outside of streaming
    cnn_past    (B, D, frames), past input of the convolutions; None outside of streaming

A layer returns its output (B, T, D), and both pasts for the next chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config.encoder import EncoderConf
from wenet_uio.models.caches import Caches, frames_to_forget, join_chunks
from wenet_uio.models.ctc import NO_CHUNKS, InterCtc, Intermediate
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.encoder_traits import EncoderTraits
from wenet_uio.models.layer_parts import build_norm, recomputed
from wenet_uio.models.masks import (
    ALL_FRAMES,
    additive,
    chunk_mask,
    draw_chunk,
    length_mask,
    reduced_lengths,
)
from wenet_uio.models.subsampling import Subsampling


@runtime_checkable
class LocalLayer(Protocol):
    """A layer whose outputs may depend on neighbouring inputs alone, see recording.py."""

    def reach(self) -> tuple[int, int] | None:
        """Return how many input frames before and after a frame its output depends on; None: all
        frames.
        """
        ...


def run_layer(
    layer: nn.Module,
    recomputes: bool,
    x: torch.Tensor,
    bias: torch.Tensor | None,
    pos_emb: torch.Tensor,
    padded: torch.Tensor,
) -> torch.Tensor:
    """Return the output of a layer for whole utterances; if it `recomputes`, the backward pass computes
    its activations again.
    """
    if recomputes:
        return recomputed(layer, x, bias, pos_emb, padded)[0]
    return layer(x, bias, pos_emb, padded)[0]


class LayeredEncoder(Encoder):
    """CMVN, input layer, then a stack of layers with the interface above.

    `drop_rates`: share of the training batches that skip each layer. `strides`: factor by which
    each layer lowers the frame rate. `reductions`: factor by which the frame rate after each layer
    is below that of the input layer.
    """

    def __init__(
        self,
        embed: Subsampling,
        conf: EncoderConf,
        traits: EncoderTraits,
        layers: list[nn.Module],
        global_cmvn: nn.Module | None,
        normalize_before: bool = True,
    ) -> None:
        super().__init__(embed, traits, global_cmvn)
        self.normalize_before = normalize_before
        self.after_norm: nn.Module = build_norm(conf.output_size, conf).requires_grad_(
            normalize_before
        )
        self.encoders = nn.ModuleList(layers)
        self.gradient_checkpointing = conf.gradient_checkpointing
        self.drop_rates = [0.0] * len(layers)
        self.strides = [1] * len(layers)
        self.reductions = [1] * len(layers)
        # TorchScript reads tuples of a module, but not its traits.
        self.att_cache_shape = traits.att_cache_shape
        self.cnn_cache_shape = traits.cnn_cache_shape

    @torch.jit.unused
    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        chunk_size: int = -1,
        num_left_chunks: int = -1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode a batch of features (B, T, F) -> encoder frames (B, T', D), lengths (B,)."""
        return self._encode(feats, feats_lengths, chunk_size, num_left_chunks, None)

    @torch.jit.unused
    def encode_between(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor, chunk_size: int = -1
    ) -> tuple[torch.Tensor, torch.Tensor, list[Intermediate]]:
        """As `forward`, and the frames after the blocks of `inter_ctc`."""
        between: list[Intermediate] = []
        x, lengths = self._encode(feats, feats_lengths, chunk_size, -1, between)
        return x, lengths, between

    @torch.jit.unused
    def _encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        chunk_size: int,
        num_left_chunks: int,
        between: list[Intermediate] | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode a batch; `between` receives the frames after the blocks of `inter_ctc`."""
        missing_frames = self.embed.right_context + 1 - feats.size(1)
        if missing_frames > 0:
            # Shorter than one window: the lengths become 0. Ids (B, T) have no feature axis to skip.
            padding = (0, missing_frames) if feats.dim() == 2 else (0, 0, 0, missing_frames)
            feats = pad(feats, padding)

        if self.global_cmvn is not None:
            feats = self.global_cmvn(feats)

        x, pos_emb, lengths = self.embed.forward_batch(feats, feats_lengths)
        valid = length_mask(lengths, x.size(1))
        bias = additive(self._attention_mask(valid, chunk_size, num_left_chunks), x.dtype)
        x = self._blocks(x, bias, pos_emb, ~valid.unsqueeze(2), between)
        lengths = reduced_lengths(lengths, self.traits.reduction)
        if self.masks_padding:
            x = x.masked_fill(~length_mask(lengths, x.size(1)).unsqueeze(2), 0.0)

        return x, lengths

    @torch.jit.unused
    def _blocks(
        self,
        x: torch.Tensor,
        bias: torch.Tensor,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
        between: list[Intermediate] | None,
    ) -> torch.Tensor:
        """Apply all layers to whole utterances; arguments as in the interface of a layer and `_encode`."""
        for place in range(len(self.encoders)):
            x = self._block(place, x, bias, pos_emb, padded, between)
        return self.after_norm(x) if self.normalize_before else x

    @torch.jit.unused
    def _block(
        self,
        place: int,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        padded: torch.Tensor,
        between: list[Intermediate] | None = None,
    ) -> torch.Tensor:
        """Apply layer `place`, and what `inter_ctc` does after it."""
        x = self._layer(place, x, bias, pos_emb, padded)
        inter = self.inter_ctc
        if inter is None or place + 1 not in inter.blocks:  # blocks count from 1
            return x
        if between is None and inter.conditioning is None:
            return x

        frames = self.after_norm(x) if self.normalize_before else x
        if between is not None:
            lengths = (~padded[:, :: self.strides[place]]).sum(dim=(1, 2))
            between.append(Intermediate(frames, lengths))
        if inter.conditioning is not None:
            x = x + inter.condition(frames)

        return x

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
        layer, drop_rate = self.encoders[place], self.drop_rates[place]
        may_skip = self.training and drop_rate > 0.0
        if may_skip and bool(torch.rand(()) < drop_rate):
            # All ranks exchange all gradients, so a skipped layer needs gradients too: zeros.
            trained = [weight for weight in layer.parameters() if weight.requires_grad]
            return x + 0.0 * sum(weight.sum() for weight in trained)

        recomputes = self.gradient_checkpointing and self.training
        return run_layer(layer, recomputes, x, bias, pos_emb, padded)

    @torch.jit.unused
    def _attention_mask(
        self, valid: torch.Tensor, chunk_size: int, num_left_chunks: int
    ) -> torch.Tensor:
        """Return the attention mask (B, 1, T) of valid frames (B, T), or (B, T, T) with chunks."""
        size = valid.size(1)
        traits = self.traits
        if traits.dynamic_chunks and self.training and chunk_size != ALL_FRAMES:
            chunk_size, num_left_chunks = draw_chunk(size, traits.dynamic_left_chunks)
        elif traits.static_chunk_size > 0 and chunk_size != ALL_FRAMES:
            chunk_size = traits.static_chunk_size

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
        """Encode one chunk (1, T, F) of one utterance -> (1, chunk, D), and both caches."""
        x, pos_emb, att_cache, cnn_cache = self._begin_chunk(xs, offset, att_cache, cnn_cache)
        all_frames = pos_emb.size(1)  # those of the cache and of the chunk
        bias: torch.Tensor | None = None
        if att_mask is not None:
            bias = additive(att_mask[:, :, :all_frames], x.dtype)

        x, att_pasts, cnn_pasts = self._chunk_blocks(
            x, bias, pos_emb, att_cache.unsqueeze(1), cnn_cache
        )
        forget = frames_to_forget(all_frames, required_cache_size)
        next_att_cache = torch.cat([past[:, :, forget:] for past in att_pasts])
        return x, next_att_cache, torch.stack(cnn_pasts)

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

        if self.normalize_before:
            x = self.after_norm(x)
        return x, att_pasts, cnn_pasts

    @torch.jit.unused
    def forward_chunks(
        self,
        xs: torch.Tensor,
        offsets: Sequence[int],
        caches: Sequence[Caches],
        keep: Sequence[int],
    ) -> tuple[torch.Tensor, list[Caches]]:
        """Encode one chunk of each of B streams together -> (B, chunk, D), and their caches."""
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)

        x = self.embed.project(xs)
        joined = join_chunks(self.embed, self.traits, x, offsets, caches)
        x, att_pasts, cnn_pasts = self.encode_joined(
            x, joined.bias, joined.pos_emb, joined.att_cache, joined.cnn_cache
        )
        return x, joined.part(att_pasts, cnn_pasts, keep)

    @torch.jit.unused
    def encode_joined(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        pos_emb: torch.Tensor,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Apply all layers to what the input layer makes of a chunk of each of B streams.

        Args:
            x: (B, T', D).
            bias: None: the caches have one length; as all others, see JoinedChunks.

        Returns:
            See `_chunk_blocks`.
        """
        cached = pos_emb.size(1) - x.size(1)
        x = self.embed.pos_enc.place(x, pos_emb[:, cached:])
        return self._chunk_blocks(x, bias, pos_emb, att_cache, cnn_cache)

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
            heads, width = self.att_cache_shape
            att_cache = x.new_zeros(len(self.encoders), heads, 0, width)
        if cnn_cache.size(0) == 0:
            channels, frames = self.cnn_cache_shape
            cnn_cache = x.new_zeros(len(self.encoders), 1, channels, frames)

        cached = att_cache.size(2)
        pos_emb = self.embed.position_encoding(offset - cached, cached + x.size(1), x)
        return x, pos_emb, att_cache, cnn_cache

    @torch.jit.unused
    def use_inter_ctc(self, inter_ctc: InterCtc) -> None:
        """Act after blocks in the middle, as `inter_ctc` says.

        The CTC layer that the blocks share belongs to the model, which is built after its encoder.
        """
        self.inter_ctc = inter_ctc
        if inter_ctc.conditioning is not None:
            self.conditioning_layer = inter_ctc.conditioning
            self.traits = replace(self.traits, obstacle=self.traits.obstacle or NO_CHUNKS)
