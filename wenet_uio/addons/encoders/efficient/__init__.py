"""Efficient Conformer (Burchi and Vielzeuf 2021)."""

from __future__ import annotations

from wenet_uio.addons.encoders.efficient.conf import EfficientConformerEncoderConf
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded

EFFICIENT_CONFORMER = EncoderKind(
    EfficientConformerEncoderConf,
    Loaded("wenet_uio.addons.encoders.efficient.encoder:EfficientConformerEncoder"),
)
