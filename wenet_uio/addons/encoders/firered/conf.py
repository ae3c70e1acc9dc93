"""`encoder_conf` of FireRedASR's conformer. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Literal

from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf


class FireredConformerEncoderConf(ConformerEncoderConf):
    """FireRedASR's conformer (Xu et al. 2025). WeNet's defaults for these two keys are those of
    other conformers.
    """

    pos_enc_layer_type: Literal["rel_pos_firered"]  # pyright: ignore[reportGeneralTypeIssues]
    selfattention_layer_type: Literal["firered_rel_selfattn"]  # pyright: ignore[reportGeneralTypeIssues]
