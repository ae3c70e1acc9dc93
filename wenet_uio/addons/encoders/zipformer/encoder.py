"""Zipformer encoder (Yao et al. 2023, https://arxiv.org/abs/2310.11230), for whole utterances and
in chunks.

Names of weights are icefall's, with its `encoder_embed` as `encoder.embed`.
"""

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.addons.encoders.zipformer.caches import CacheLayout
from wenet_uio.addons.encoders.zipformer.conf import OUTPUT_DOWNSAMPLING, ZipformerEncoderConf
from wenet_uio.addons.encoders.zipformer.embed import CONTEXT, ZipformerEmbed
from wenet_uio.addons.encoders.zipformer.layer import Context, FullRateStack, LowRateStack
from wenet_uio.addons.encoders.zipformer.modules import Downsample, relative_positions
from wenet_uio.models.clock import Clock
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.encoder_traits import SEES_FUTURE, EncoderTraits
from wenet_uio.models.masks import ALL_FRAMES, chunk_mask, length_mask

MASKED_SHARE = 0.125
"""Share of the training utterances in which half of the channels above encoder_unmasked_dim are
zeros, then all."""
LAST_FRAMES = (
    "WeNet's runtime would not decode the last 60 ms of each utterance with a causal zipformer: "
    "export it by export_onnx.py for sherpa-onnx"
)


class ZipformerEncoder(Encoder):
    """Stacks of layers at several frame rates; the output has half the rate of the input layer.

    Chunks are counted in frames of the input layer (20 ms). CacheLayout describes the caches.
    """

    trains_on_padding = True

    def __init__(
        self, input_size: int, conf: ZipformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        clock = Clock(conf.schedule_speed)
        stacks = conf.stacks
        embed = ZipformerEmbed(clock, input_size, stacks[0].encoder_dim, conf.dropout_rate)
        super().__init__(embed, _build_traits(conf), global_cmvn)
        self.embed = embed  # the base knows it as a Subsampling
        stack_classes = [
            FullRateStack if stack.downsampling_factor == 1 else LowRateStack for stack in stacks
        ]
        self.encoders = nn.ModuleList(
            [stack_class(clock, conf, number) for number, stack_class in enumerate(stack_classes)]
        )
        self.downsample_output = Downsample(OUTPUT_DOWNSAMPLING)
        self.layout = CacheLayout(conf, embed.cache_shape)
        self.factors = [stack.downsampling_factor for stack in stacks]
        self.dims = [stack.encoder_dim for stack in stacks]
        self.head_sizes = [
            (stack.num_heads, stack.query_head_dim, stack.value_head_dim) for stack in stacks
        ]
        self.unmasked_dims = [stack.encoder_unmasked_dim for stack in stacks]
        self.pos_dim = conf.pos_dim
        self.causal = conf.causal
        self.chunk_sizes, self.left_context_frames = conf.chunk_size, conf.left_context_frames
        # TorchScript reads numbers of a module, but not its traits.
        self.chunk_unit = conf.chunk_unit

    @torch.jit.unused
    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        chunk_size: int = -1,
        num_left_chunks: int = -1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Encoder.forward. A model that is not causal ignores the chunks."""
        least = self.embed.right_context + 1 - self.embed.optional_context
        if feats.size(1) < least:  # shorter than one window: the lengths become 0
            feats = pad(feats, (0, 0, 0, least - feats.size(1)))
        if self.global_cmvn is not None:
            feats = self.global_cmvn(feats)

        x, _, lengths = self.embed.forward_batch(feats, feats_lengths)
        chunk_size, num_left_chunks = self._chunks(chunk_size, num_left_chunks)
        valid = length_mask(lengths, x.size(1))
        blocked = ~valid[:, None, None, :]
        if chunk_size > 0:
            blocked = blocked | ~chunk_mask(x.size(1), chunk_size, num_left_chunks, x.device)

        x, _ = self.run_stacks(x, lengths, blocked, chunk_size, [])
        lengths = torch.div(lengths + 1, OUTPUT_DOWNSAMPLING, rounding_mode="floor")
        if self.masks_padding:
            x = x.masked_fill(~length_mask(lengths, x.size(1)).unsqueeze(2), 0.0)

        return x, lengths

    @torch.jit.unused
    def _chunks(self, chunk_size: int, num_left_chunks: int) -> tuple[int, int]:
        """Return the chunk size and left chunks of a batch, in training drawn; -1: whole
        utterances, all chunks.
        """
        if not self.causal or chunk_size == ALL_FRAMES:
            return -1, -1
        if not self.training:
            return chunk_size, num_left_chunks

        chunk_size = _draw_value(self.chunk_sizes)
        frames_before = _draw_value(self.left_context_frames)
        if frames_before < 0 or chunk_size < 0:
            return chunk_size, -1
        return chunk_size, max(1, frames_before // chunk_size)

    def run_stacks(
        self,
        x: torch.Tensor,
        lengths: torch.Tensor | None,
        blocked: torch.Tensor | None,
        chunk_size: int,
        caches: list[list[torch.Tensor]],
    ) -> tuple[torch.Tensor, list[list[torch.Tensor]]]:
        """Apply all stacks and the last downsampling.

        Args:
            x: (B, T, D) frames of the input layer.
            lengths: (B,) frames of each utterance; None: T.
            blocked: bool, broadcast to (B, 1, T, C + T): True for keys that a query must not see.
            chunk_size: frames of a chunk; negative: the whole utterance.
            caches: of each stack, see Stack.forward; empty for whole utterances.

        Returns:
            Encoder frames (B, ceil(T / 2), D'), and the caches with these frames.
        """
        exact = lengths if self.masks_padding else None
        masks = self.draw_masks(x) if self.training else []
        outputs: list[torch.Tensor] = []
        presents: list[list[torch.Tensor]] = []

        for i, stack in enumerate(self.encoders):
            # Stacks differ in width: zeros are added, or the last channels are left out.
            x = pad(x, (0, max(0, self.dims[i] - x.size(2))))[:, :, : self.dims[i]]
            channels = masks[i] if len(masks) > 0 else None
            cached = caches[i] if len(caches) > 0 else []
            context = self.context(i, x, lengths, blocked, chunk_size, cached, channels)
            x, present = stack.run(x, context, cached, exact)  # pyright: ignore[reportCallIssue]
            outputs.append(x)
            presents.append(present)

        return self.downsample_output(self.all_channels(outputs), exact), presents

    def context(
        self,
        place: int,
        x: torch.Tensor,
        lengths: torch.Tensor | None,
        blocked: torch.Tensor | None,
        chunk_size: int,
        caches: list[torch.Tensor],
        channels: torch.Tensor | None,
    ) -> Context:
        """Return what the layers of stack `place` share; arguments as in `run_stacks`, x and
        blocked at the full rate.
        """
        factor = self.factors[place]
        # All numbers of frames are those at the rate of the stack.
        num_frames = (x.size(1) + factor - 1) // factor
        frames_before = caches[0].size(1) if len(caches) > 0 else 0
        padded: torch.Tensor | None = None
        if lengths is not None:
            lengths = torch.div(lengths + factor - 1, factor, rounding_mode="floor")
            padded = ~length_mask(lengths, num_frames).unsqueeze(2)
        if blocked is not None:
            blocked = blocked[:, :, ::factor, ::factor]

        return Context(
            relative_positions(frames_before, num_frames, self.pos_dim, x),
            blocked,
            padded,
            lengths if self.masks_padding else None,
            chunk_size // factor if chunk_size > 0 else -1,
            channels,
        )

    def all_channels(self, outputs: list[torch.Tensor]) -> torch.Tensor:
        """Return frames of the largest width: each channel from the last stack that has it."""
        x = outputs[-1]
        for i in range(len(outputs) - 2, -1, -1):
            if outputs[i].size(2) > x.size(2):
                x = torch.cat((x, outputs[i][:, :, x.size(2) :]), dim=2)
        return x

    @torch.jit.unused
    def draw_masks(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Draw a mask (B, 1, D) for each stack: ones, but zeros for the upper channels of some
        utterances, or for the upper half of these channels.
        """
        # (B, 1, 1): 0 for the utterances that lose all channels above unmasked_dim, and for those that
        # lose the upper half of them, else 1.
        draws = (torch.rand(x.size(0), 1, 1) > MASKED_SHARE for _ in range(2))
        keeps_upper, keeps_top = (kept.to(x.device, x.dtype, non_blocking=True) for kept in draws)
        masks = []

        for dim, unmasked_dim in zip(self.dims, self.unmasked_dims, strict=True):
            middle_dim = (dim - unmasked_dim) // 2
            masks_and_dims = (
                (torch.ones_like(keeps_upper), unmasked_dim),
                (keeps_upper, middle_dim),
                (keeps_upper * keeps_top, dim - unmasked_dim - middle_dim),
            )
            masks.append(
                torch.cat([mask.expand(-1, -1, size) for mask, size in masks_and_dims], dim=2)
            )

        return masks

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
        """See Encoder.forward_chunk; CacheLayout describes the caches.

        A model that is not causal encodes a whole utterance. A chunk that is no multiple of
        `chunk_unit` must be the last one.

        Args:
            att_mask: not used; caches have no empty entries.
        """
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)

        if not self.causal:
            x = self.embed.project(xs)
            encoder_out, _ = self.run_stacks(
                x, lengths=None, blocked=None, chunk_size=-1, caches=[]
            )
            return encoder_out, att_cache, cnn_cache

        # The last frames are right context of the ConvNeXt layer: the next chunk encodes them.
        convolved = self.embed.convolve(xs)
        size = convolved.size(2) - self.embed.convnext.margin
        return self.encode_chunk(convolved, size, size, required_cache_size, (att_cache, cnn_cache))

    @torch.jit.unused
    def forward_end(
        self,
        xs: torch.Tensor,
        chunk_size: int,
        required_cache_size: int,
        caches: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode the last frames of an utterance, fewer than those of a whole chunk; see
        chunks.Ending.
        """
        if self.global_cmvn is not None:
            xs = self.global_cmvn(xs)

        convolved = self.embed.convolve(xs)
        frames = convolved.size(2)
        convolved = pad(convolved, (0, 0, 0, chunk_size + CONTEXT - frames))
        size = min(frames, chunk_size)
        return self.encode_chunk(convolved, chunk_size, size, required_cache_size, caches)

    def encode_chunk(
        self,
        convolved: torch.Tensor,
        chunk_size: int,
        size: int,
        required_cache_size: int,
        caches: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode a chunk of B streams.

        Args:
            convolved: (B, C, chunk_size + CONTEXT, F') of ZipformerEmbed.convolve, zeros after the
                utterance.
            chunk_size: frames of a chunk.
            size: frames of the chunk that the utterance has.
            required_cache_size: frames to keep for the next chunk; negative: all.
            caches: of attention and of convolutions.

        Returns:
            Encoder frames (B, ceil(size / 2), D'), and both caches.
        """
        att_cache, cnn_cache = self.layout.started(caches, convolved)
        before, split = self.layout.split(att_cache, cnn_cache)
        convolved = torch.cat((before, convolved), dim=2)
        x = self.embed.finish(convolved)

        # The stack at the lowest rate needs whole frames: zeros fill the last chunk up.
        missing = (self.chunk_unit - chunk_size % self.chunk_unit) % self.chunk_unit
        x = pad(x, (0, 0, 0, missing))

        # Frames that the utterance does not have are hidden from attention and convolutions.
        lengths: torch.Tensor | None = None
        blocked: torch.Tensor | None = None
        if size < x.size(1):
            lengths = torch.full((x.size(0),), size, device=x.device)
            # Frames of the attention cache have negative numbers.
            frame = torch.arange(-att_cache.size(2) * self.chunk_unit, x.size(1), device=x.device)
            blocked = (frame >= size).view(1, 1, 1, -1).expand(1, 1, x.size(1), -1)

        x, presents = self.run_stacks(x, lengths, blocked, x.size(1), split)
        after = convolved[:, :, chunk_size : chunk_size + self.embed.convnext.margin].flatten(1)
        att_cache, cnn_cache = self.layout.joined(presents, after, required_cache_size)
        return x[:, : (size + 1) // 2], att_cache, cnn_cache


def _draw_value(values: tuple[int, ...]) -> int:
    """Draw one of the values, each with equal probability."""
    return values[int(torch.randint(len(values), ()))]


def _build_traits(conf: ZipformerEncoderConf) -> EncoderTraits:
    """Return what other code must know of the encoder: widths, chunks, and why it cannot stream or
    be exported.
    """
    return EncoderTraits(
        output_size=conf.output_size,
        width=conf.output_size,
        layers=len(conf.stacks),
        heads=conf.attention_heads,
        head_dim=conf.query_head_dim[0],
        reduction=OUTPUT_DOWNSAMPLING,
        dynamic_chunks=conf.causal,
        dynamic_left_chunks=conf.causal,
        chunk_unit=conf.chunk_unit,
        chunk_divisor=conf.chunk_unit,
        batches_chunks=False,
        obstacle="" if conf.causal else SEES_FUTURE,
        export_obstacle=LAST_FRAMES if conf.causal else "",
    )
