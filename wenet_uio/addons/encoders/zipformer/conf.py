"""`encoder_conf` of the Zipformer. Keys are the options of icefall's recipe; defaults are its
medium size.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from pydantic import Field, field_validator, model_validator

from wenet_uio.config.base import Positive
from wenet_uio.config.encoder import DropoutRate, EncoderSection

OfStacks = Annotated[tuple[Positive, ...], Field(min_length=1)]
"""One number for each stack, or one for all stacks."""
OUTPUT_DOWNSAMPLING = 2
"""Factor by which the frame rate is lowered after the last stack."""


class StackConf(NamedTuple):
    """Sizes of a stack of layers at one frame rate."""

    downsampling_factor: int
    encoder_dim: int
    encoder_unmasked_dim: int
    num_encoder_layers: int
    feedforward_dim: int
    num_heads: int
    query_head_dim: int
    pos_head_dim: int
    value_head_dim: int
    cnn_module_kernel: int


class ZipformerEncoderConf(EncoderSection):
    """Zipformer (Yao et al. 2023, https://arxiv.org/abs/2310.11230): stacks of layers at several
    frame rates.

    The input layer lowers the frame rate by 2, and the output is lowered by 2 again. Most keys have
    one number for each stack, or one for all stacks.
    """

    downsampling_factor: OfStacks = (1, 2, 4, 8, 4, 2)
    """Factor by which each stack lowers the frame rate of the input layer."""
    encoder_dim: OfStacks = (192, 256, 384, 512, 384, 256)
    """Width of each stack."""
    encoder_unmasked_dim: OfStacks = (192, 192, 256, 256, 256, 192)
    """Channels that training never masks; the others are zeros in some of the utterances."""
    num_encoder_layers: OfStacks = (2, 2, 3, 4, 3, 2)
    feedforward_dim: OfStacks = (512, 768, 1024, 1536, 1024, 768)
    """Hidden width of the second of three feed-forward modules; the others have 3/4 and 5/4 of
    it."""
    num_heads: OfStacks = (4, 4, 4, 8, 4, 4)
    query_head_dim: OfStacks = (32,)
    pos_head_dim: OfStacks = (4,)
    """Width of the queries of positions, in each head."""
    value_head_dim: OfStacks = (12,)
    cnn_module_kernel: OfStacks = (31, 31, 15, 15, 15, 31)
    """Frames of the stack."""
    pos_dim: Annotated[int, Field(gt=0, multiple_of=2)] = 48
    """Width of the position encodings."""
    causal: bool = False
    """Convolutions see no frames after the chunk; training draws chunks. Streaming needs this."""
    chunk_size: tuple[int, ...] = (16, 32, 64, -1)
    """causal: sizes that training draws, in frames of the input layer (20 ms); -1: full context."""
    left_context_frames: tuple[int, ...] = (64, 128, 256, -1)
    """causal: frames of the input layer before the chunk that training draws; -1: all."""
    dropout_rate: DropoutRate = 0.1
    """Dropout after the first 20,000 steps; it begins with three times this rate."""
    warmup_batches: Positive = 4000
    """Steps in which the stacks begin to learn, one after the other: before its turn, half of the
    utterances skip a layer."""
    schedule_speed: float = Field(default=1.0, gt=0)
    """Steps by which dropout, balancers and the other schedules advance in an optimizer step. The
    published schedules count batches of 600 s: with batches of 60 s, 0.1 is the same pace. Short
    trainings need a larger number."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""

    @field_validator("*", mode="before")
    @classmethod
    def _as_list(cls, value: object, info: object) -> object:
        """Return the list of a key that has one number for all stacks, or text such as "2,2,3", as in
        the command lines of icefall.
        """
        name = getattr(info, "field_name", "")
        lists = (*StackConf._fields, "chunk_size", "left_context_frames")
        if name in lists and isinstance(value, int):
            return (value,)
        if name in lists and isinstance(value, str):
            return tuple(int(number) for number in value.split(","))

        return value

    @model_validator(mode="after")
    def _can_be_built(self) -> ZipformerEncoderConf:
        """Raise ValueError if no encoder can have these stacks and chunks."""
        for name in StackConf._fields:
            if len(getattr(self, name)) not in (1, self.num_stacks):
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} numbers for {self.num_stacks} stacks "
                    "(downsampling_factor)"
                )

        for stack in self.stacks:
            _check_stack(stack)

        if not self.chunk_size or not self.left_context_frames:
            raise ValueError(
                "chunk_size and left_context_frames need a number each; -1 is the whole utterance"
            )

        wrong = [
            size for size in self.chunk_size if size != -1 and (size < 1 or size % self.chunk_unit)
        ]
        if self.causal and wrong:
            raise ValueError(
                f"chunk_size {wrong[0]}: expected -1 or a multiple of {self.chunk_unit}, by which "
                "the stacks lower the frame rate"
            )

        return self

    @property
    def num_stacks(self) -> int:
        """Number of stacks."""
        return len(self.downsampling_factor)

    @property
    def stacks(self) -> tuple[StackConf, ...]:
        """Sizes of each stack."""
        columns = (getattr(self, name) for name in StackConf._fields)

        # A key with one value has it in all stacks.
        filled = (column * self.num_stacks if len(column) == 1 else column for column in columns)
        return tuple(map(StackConf, *filled))

    @property
    def chunk_unit(self) -> int:
        """Chunks are multiples of this number of frames of the input layer."""
        return math.lcm(OUTPUT_DOWNSAMPLING, *self.downsampling_factor)

    @property
    def output_size(self) -> int:
        """Width of the encoder frames."""
        return max(self.encoder_dim)

    @property
    def num_blocks(self) -> int:
        """Number of layers."""
        return sum(stack.num_encoder_layers for stack in self.stacks)

    @property
    def attention_heads(self) -> int:
        """Heads of the widest stack."""
        return max(self.num_heads)


def _check_stack(stack: StackConf) -> None:
    """Raise a ValueError for sizes that the modules of a layer cannot have."""
    if stack.cnn_module_kernel % 2 == 0:
        raise ValueError(f"cnn_module_kernel {stack.cnn_module_kernel} is even: it must be odd")

    if stack.encoder_unmasked_dim > stack.encoder_dim:
        raise ValueError(
            f"encoder_unmasked_dim {stack.encoder_unmasked_dim} is above encoder_dim "
            f"{stack.encoder_dim}"
        )

    if stack.encoder_dim % 4 or stack.feedforward_dim % 4:
        raise ValueError(
            "encoder_dim and feedforward_dim must be multiples of 4: some modules have 3/4 of them"
        )
