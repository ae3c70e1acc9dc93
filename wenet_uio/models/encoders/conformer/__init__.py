"""Conformer (Gulati et al. 2020), with dynamic chunks as in U2 (Zhang et al. 2020)."""

from __future__ import annotations

from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf, DualConformerEncoderConf

CONFORMER = EncoderKind(
    ConformerEncoderConf, Loaded("wenet_uio.models.encoders.conformer.encoder:ConformerEncoder")
)
DUAL_CONFORMER = EncoderKind(
    DualConformerEncoderConf, Loaded("wenet_uio.models.encoders.conformer.encoder:dual_conformer")
)
