"""Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded
from wenet_uio.models.encoders.transformer.conf import TransformerEncoderConf

TRANSFORMER = EncoderKind(
    TransformerEncoderConf,
    Loaded("wenet_uio.models.encoders.transformer.encoder:TransformerEncoder"),
)
