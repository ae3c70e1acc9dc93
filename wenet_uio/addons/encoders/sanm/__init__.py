"""Self-attention with memory (SANM, Gao et al. 2020)."""

from __future__ import annotations

from wenet_uio.addons.encoders.sanm.conf import SanmEncoderConf, SanmEncoderWithTpConf
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded

SANM = EncoderKind(SanmEncoderConf, Loaded("wenet_uio.addons.encoders.sanm.encoder:SanmEncoder"))
SANM_WITH_TP = EncoderKind(
    SanmEncoderWithTpConf, Loaded("wenet_uio.addons.encoders.sanm.encoder:SanmEncoderWithTp")
)
