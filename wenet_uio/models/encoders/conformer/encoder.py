"""Conformer encoder (Gulati et al. 2020)."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from wenet_uio.models.encoder_traits import SEES_FUTURE, EncoderTraits, traits_of
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf, DualConformerEncoderConf
from wenet_uio.models.encoders.conformer.layer import ConformerEncoderLayer
from wenet_uio.models.input_layers import input_layer
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.subsampling import Subsampling


class ConformerEncoder(LayeredEncoder):
    """Conformer encoder (Gulati et al. 2020), with dynamic chunks as in U2 (Zhang et al. 2020)."""

    LAYER = ConformerEncoderLayer

    def __init__(
        self, input_size: int, conf: ConformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [self.LAYER(conf) for _ in range(conf.num_blocks)]
        embed = input_layer(input_size, conf)
        traits = self._traits(conf, embed)
        super().__init__(embed, conf, traits, layers, global_cmvn, conf.normalize_before)
        self.after_norm = self.after_norm if conf.final_norm else nn.Identity()

    def _traits(self, conf: ConformerEncoderConf, embed: Subsampling) -> EncoderTraits:
        convolves = conf.use_cnn_module
        return replace(
            traits_of(conf),
            obstacle=SEES_FUTURE if convolves and not conf.causal else embed.obstacle,
            cnn_cache_frames=conf.cnn_module_kernel - 1 if convolves and conf.causal else 0,
        )


def dual_conformer(
    input_size: int, conf: DualConformerEncoderConf, global_cmvn: nn.Module | None = None
) -> ConformerEncoder:
    """Build the conformer of a model that compares chunks with full context."""
    return ConformerEncoder(input_size, conf.conformer, global_cmvn)
