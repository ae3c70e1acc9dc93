"""Encoder of FireRedASR (Xu et al. 2025)."""

from __future__ import annotations

from wenet_uio.addons.encoders.firered.conf import FireredConformerEncoderConf
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded

FIRERED_CONFORMER = EncoderKind(
    FireredConformerEncoderConf,
    Loaded("wenet_uio.addons.encoders.firered.encoder:FireredConformerEncoder"),
)
