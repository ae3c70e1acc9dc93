"""Branchformer (Peng et al. 2022) and E-Branchformer (Kim et al. 2022)."""

from __future__ import annotations

from wenet_uio.addons.encoders.branchformer.conf import (
    BranchformerEncoderConf,
    EBranchformerEncoderConf,
)
from wenet_uio.config.encoder_kind import EncoderKind
from wenet_uio.config.named_code import Loaded

BRANCHFORMER = EncoderKind(
    BranchformerEncoderConf,
    Loaded("wenet_uio.addons.encoders.branchformer.encoder:BranchformerEncoder"),
)
E_BRANCHFORMER = EncoderKind(
    EBranchformerEncoderConf,
    Loaded("wenet_uio.addons.encoders.branchformer.encoder:EBranchformerEncoder"),
)
