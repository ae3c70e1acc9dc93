"""Normalisations of frames, by the names that the yaml uses."""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.encoder import AttentionConf


class RMSNorm(nn.Module):
    """Division by the root mean square (Zhang and Sennrich 2019), then multiplication by 1 + weight
    as in Gemma.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise (..., D) -> (..., D)."""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * (1 + self.weight)


def build_norm(dim: int, conf: AttentionConf) -> nn.Module:
    """Build the normalisation `conf.layer_norm_type`."""
    if conf.layer_norm_type == "rms_norm":
        return RMSNorm(dim, conf.norm_eps)
    return nn.LayerNorm(dim, eps=conf.norm_eps)
