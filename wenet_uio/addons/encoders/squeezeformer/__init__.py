"""Squeezeformer (Kim et al. 2022)."""

from __future__ import annotations

from wenet_uio.addons.encoders.squeezeformer.conf import SqueezeformerEncoderConf
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded

SQUEEZEFORMER = EncoderKind(
    SqueezeformerEncoderConf,
    Loaded("wenet_uio.addons.encoders.squeezeformer.encoder:SqueezeformerEncoder"),
)
