"""Transformer encoder (Vaswani et al. 2017)."""

from __future__ import annotations

from torch import nn

from wenet_uio.models.encoder import Encoder
from wenet_uio.models.encoders.transformer.conf import TransformerEncoderConf
from wenet_uio.models.encoders.transformer.layer import TransformerEncoderLayer
from wenet_uio.models.input_layers import input_layer


class TransformerEncoder(Encoder):
    """Transformer encoder (Vaswani et al. 2017)."""

    def __init__(
        self, input_size: int, conf: TransformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [TransformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        super().__init__(
            input_layer(input_size, conf), conf, layers, global_cmvn, conf.normalize_before
        )
