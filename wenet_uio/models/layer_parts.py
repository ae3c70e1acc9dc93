"""Parts of the layers of encoders and decoders: norms, activations, feed-forward modules, and
gradient checkpointing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from wenet_uio.config.encoder import AttentionConf, FeedForwardConf
from wenet_uio.models.dropout import Dropout


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


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "swish": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "hardtanh": nn.Hardtanh,
    "selu": nn.SELU,
}
"""{name in the yaml: class}."""


class PositionwiseFeedForward(nn.Module):
    """Linear layer to `hidden` channels, activation, linear layer back to `dim`."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout_rate: float,
        activation: nn.Module,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.w_1 = nn.Linear(dim, hidden, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout_rate)
        self.w_2 = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the module: (..., D) -> (..., D)."""
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class GatedFeedForward(PositionwiseFeedForward):
    """The hidden layer is multiplied by an activation of a second projection (Shazeer 2020)."""

    def __init__(
        self,
        dim: int,
        hidden: int,
        dropout_rate: float,
        activation: nn.Module,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(dim, hidden, dropout_rate, activation, bias=bias)
        self.gate = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the module: (..., D) -> (..., D)."""
        return self.w_2(self.dropout(self.activation(self.gate(x)) * self.w_1(x)))


class MixtureOfExperts(nn.Module):
    """A router sends each frame through the `active` best of its experts (Shazeer et al. 2017)."""

    def __init__(self, experts: list[nn.Module], active: int, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, len(experts), bias=False)
        self.experts = nn.ModuleList(experts)
        self.active = active

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the module: (..., D) -> (..., D)."""
        frames = x.reshape(-1, x.size(-1))  # (N, D)
        scores, chosen = torch.topk(self.gate(frames), self.active, dim=1)  # (N, active)
        weights = scores.float().softmax(dim=1).to(x.dtype)
        total = torch.zeros_like(frames)

        for number, expert in enumerate(self.experts):
            # An expert without frames is called too: all ranks exchange all gradients.
            rows, places = torch.where(chosen == number)
            share = weights[rows, places].unsqueeze(1) * expert(frames[rows])
            total = total.index_add(0, rows, share.to(total.dtype))

        return total.view(x.shape)


def build_feed_forward(dim: int, dropout_rate: float, conf: FeedForwardConf) -> nn.Module:
    """Build the feed-forward module `conf.mlp_type`."""
    kind = GatedFeedForward if conf.mlp_type == "gated" else PositionwiseFeedForward

    def build_one() -> nn.Module:
        activation = ACTIVATIONS[conf.activation_type]()
        return kind(dim, conf.linear_units, dropout_rate, activation, bias=conf.mlp_bias)

    if conf.mlp_type == "moe":
        experts = [build_one() for _ in range(conf.n_expert)]
        return MixtureOfExperts(experts, conf.n_expert_activated, dim)

    return build_one()


def recomputed(layer: Callable[..., Any], *inputs: Any) -> Any:
    """Return `layer(*inputs)`; the backward pass computes its activations again instead of storing
    them.

    Nothing is prepared for a backward pass that a frozen layer on frozen inputs does not have.
    """
    if any(_needs_gradient(part) for part in (layer, *inputs)):
        return checkpoint(layer, *inputs, use_reentrant=False)
    return layer(*inputs)


def _needs_gradient(part: Any) -> bool:
    """Tell whether a module, a tensor or another argument leads to weights that are trained."""
    if isinstance(part, nn.Module):
        return any(weight.requires_grad for weight in part.parameters())
    return isinstance(part, torch.Tensor) and part.requires_grad
