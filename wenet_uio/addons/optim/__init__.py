"""Optimizers besides Adam and AdamW: ScaledAdam and Muon."""

from __future__ import annotations

from wenet_uio.addons.optim.conf import MuonConf, ScaledAdamConf
from wenet_uio.config.named_code import Loaded
from wenet_uio.config.optimizer import OptimizerKind

SCALED_ADAM = OptimizerKind(
    ScaledAdamConf, Loaded("wenet_uio.addons.optim.scaled_adam:build"), needs_whole_weights=True
)
MUON = OptimizerKind(
    MuonConf, Loaded("wenet_uio.addons.optim.muon:build"), needs_whole_weights=True
)
