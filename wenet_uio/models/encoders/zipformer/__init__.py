"""Zipformer (Yao et al. 2023)."""

from __future__ import annotations

from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded
from wenet_uio.models.encoders.zipformer.conf import ZipformerEncoderConf

_FOLDER = "wenet_uio.models.encoders.zipformer"
ZIPFORMER = EncoderKind(
    ZipformerEncoderConf,
    Loaded(f"{_FOLDER}.encoder:ZipformerEncoder"),
)
