"""Feed-forward modules: the same function of every frame."""

from __future__ import annotations

import torch
from torch import nn

from wenet_uio.config.encoder import FeedForwardConf
from wenet_uio.models.activation import ACTIVATIONS
from wenet_uio.models.dropout import Dropout


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
        frames = x.reshape(-1, x.size(-1))
        scores, chosen = torch.topk(self.gate(frames), self.active, dim=1)
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

    def one() -> nn.Module:
        activation = ACTIVATIONS[conf.activation_type]()
        return kind(dim, conf.linear_units, dropout_rate, activation, bias=conf.mlp_bias)

    if conf.mlp_type == "moe":
        return MixtureOfExperts([one() for _ in range(conf.n_expert)], conf.n_expert_activated, dim)

    return one()
