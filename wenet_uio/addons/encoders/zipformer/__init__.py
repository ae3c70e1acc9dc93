"""Zipformer (Yao et al. 2023)."""

from __future__ import annotations

from wenet_uio.addons.encoders.zipformer.conf import ZipformerEncoderConf
from wenet_uio.config.checkpoint_layout import CheckpointLayout
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded

_FOLDER = "wenet_uio.addons.encoders.zipformer"
_ICEFALL = f"{_FOLDER}.exchange.icefall"
ZIPFORMER = EncoderKind(
    ZipformerEncoderConf,
    Loaded(f"{_FOLDER}.encoder:ZipformerEncoder"),
    sherpa=Loaded(f"{_FOLDER}.exchange.sherpa:zipformer_export"),
    layouts={
        "icefall": CheckpointLayout(
            "a folder of a Zipformer of icefall with CTC",
            Loaded(f"{_ICEFALL}:is_icefall"),
            Loaded(f"{_ICEFALL}:from_icefall"),
            Loaded(f"{_ICEFALL}:to_icefall"),
        )
    },
)
