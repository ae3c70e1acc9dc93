"""Encoder of FireRedASR (Xu et al. 2025, https://arxiv.org/abs/2501.14350), with the names of
WeNet's weights.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from wenet_uio.models.encoder_traits import EncoderTraits
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf
from wenet_uio.models.encoders.conformer.encoder import ConformerEncoder, ConformerEncoderLayer
from wenet_uio.models.subsampling import Subsampling


class FireredConformerEncoderLayer(ConformerEncoderLayer):
    """A conformer layer whose attention normalises queries, keys and values itself."""

    def __init__(self, conf: ConformerEncoderConf) -> None:
        super().__init__(conf)
        self.norm_mha = nn.Identity()


class FireredConformerEncoder(ConformerEncoder):
    """Conformer with relative positions in both directions. It does not stream."""

    LAYER = FireredConformerEncoderLayer

    def _traits(self, conf: ConformerEncoderConf, embed: Subsampling) -> EncoderTraits:
        return replace(
            super()._traits(conf, embed),
            obstacle="encoder firered_conformer needs the positions of the whole utterance",
        )
