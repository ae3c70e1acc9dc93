"""Conformer encoder (Gulati et al. 2020)."""

from __future__ import annotations

from torch import nn

from wenet_uio.models.encoder import SEES_FUTURE, Encoder
from wenet_uio.models.encoders.conformer.conf import ConformerEncoderConf, DualConformerEncoderConf
from wenet_uio.models.encoders.conformer.layer import ConformerEncoderLayer
from wenet_uio.models.input_layers import input_layer


class ConformerEncoder(Encoder):
    """Conformer encoder (Gulati et al. 2020), with dynamic chunks as in U2 (Zhang et al. 2020)."""

    LAYER = ConformerEncoderLayer

    def __init__(
        self, input_size: int, conf: ConformerEncoderConf, global_cmvn: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [self.LAYER(conf) for _ in range(conf.num_blocks)]
        super().__init__(
            input_layer(input_size, conf), conf, layers, global_cmvn, conf.normalize_before
        )
        self.after_norm = self.after_norm if conf.final_norm else nn.Identity()
        self.obstacle = SEES_FUTURE if conf.use_cnn_module and not conf.causal else self.obstacle
        self.cnn_cache_frames = (
            conf.cnn_module_kernel - 1 if conf.use_cnn_module and conf.causal else 0
        )


def dual_conformer(
    input_size: int, conf: DualConformerEncoderConf, global_cmvn: nn.Module | None = None
) -> ConformerEncoder:
    """Build the conformer of a model that compares chunks with full context."""
    return ConformerEncoder(input_size, conf.conformer, global_cmvn)
