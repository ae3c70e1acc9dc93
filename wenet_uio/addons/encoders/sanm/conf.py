"""`encoder_conf` of the SANM encoders. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from wenet_uio.config.base import Positive
from wenet_uio.config.encoder import (
    ChunkConf,
    DropoutRate,
    EncoderSection,
    MemoryConf,
    StackConf,
    heads_divide,
)
from wenet_uio.models.encoders.transformer.conf import TransformerEncoderConf


class SanmEncoderConf(StackConf, ChunkConf, MemoryConf, EncoderSection):
    """Self-attention with memory (SANM, Gao et al. 2020)."""

    output_size: Positive = 256
    linear_units: Positive = 2048
    """Width of the hidden layer of the feed-forward modules."""
    attention_dropout_rate: DropoutRate = 0.0
    input_layer: str = "paraformer_dummy"
    """Not used, a key of WeNet: this encoder takes features as they are."""
    pos_enc_layer_type: str = "abs_pos_paraformer"
    """Not used, a key of WeNet: this encoder has positions of its own."""
    normalize_before: Literal[True] = True
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> SanmEncoderConf:
        heads_divide(self.attention_heads, "output_size", self.output_size)
        return self

    @property
    def blocks(self) -> TransformerEncoderConf:
        """The keys that the layers share with a transformer."""
        names = ("output_size", "attention_heads", "linear_units", "num_blocks", "dropout_rate")
        names += ("attention_dropout_rate", "gradient_checkpointing", *ChunkConf.model_fields)
        return TransformerEncoderConf(**{name: getattr(self, name) for name in names})


class SanmEncoderWithTpConf(SanmEncoderConf):
    """SANM encoder with a second stack of layers."""

    tp_blocks: Positive
    """Number of layers of the second stack."""
