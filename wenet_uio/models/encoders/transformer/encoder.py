"""Transformer encoder (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from wenet_uio.models.encoder_traits import traits_of
from wenet_uio.models.encoders.transformer.conf import TransformerEncoderConf
from wenet_uio.models.encoders.transformer.layer import TransformerEncoderLayer
from wenet_uio.models.input_layers import input_layer
from wenet_uio.models.layered_encoder import LayeredEncoder


class TransformerEncoder(LayeredEncoder):
    """Transformer encoder (Vaswani et al. 2017)."""

    def __init__(
        self, input_size: int, conf: TransformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [TransformerEncoderLayer(conf) for _ in range(conf.num_blocks)]
        embed = input_layer(input_size, conf)
        traits = replace(traits_of(conf), obstacle=embed.obstacle)
        super().__init__(embed, conf, traits, layers, global_cmvn, conf.normalize_before)
