"""Encoder of FireRedASR (Xu et al. 2025, https://arxiv.org/abs/2501.14350), with the names of
WeNet's weights.
"""

from __future__ import annotations

from torch import nn

from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf
from wenet_uio.models.encoders.conformer.encoder import ConformerEncoder
from wenet_uio.models.encoders.conformer.layer import ConformerEncoderLayer
from wenet_uio.models.encoders.firered.conf import FireredConformerEncoderConf


class FireredConformerEncoderLayer(ConformerEncoderLayer):
    """A conformer layer whose attention normalises queries, keys and values itself."""

    def __init__(self, conf: ConformerEncoderConf) -> None:
        super().__init__(conf)
        self.norm_mha = nn.Identity()


class FireredConformerEncoder(ConformerEncoder):
    """Conformer with relative positions in both directions. It does not stream."""

    LAYER = FireredConformerEncoderLayer

    def __init__(
        self,
        input_size: int,
        conf: FireredConformerEncoderConf,
        global_cmvn: nn.Module | None = None,
    ) -> None:
        super().__init__(input_size, conf, global_cmvn)
        self.obstacle = "encoder firered_conformer needs the positions of the whole utterance"
