"""Small modules of the Zipformer: activations, BiasNorm, bypass, change of the frame rate,
positions, dropout.

Yao et al. 2023, https://arxiv.org/abs/2310.11230. Names of weights are icefall's.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import dropout, pad, softplus

from wenet_uio.addons.encoders.zipformer.regularisers import kept_in_range, kept_rows
from wenet_uio.models.clock import Clock, Clocked, Schedule

SLOPE = 0.08
"""Slope of the activations far below 0, negated."""


class _Swoosh(torch.autograd.Function):
    """Keeps its input only, and needs fewer passes over it than autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shift: float, offset: float) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x)
        ctx.shift = shift
        return softplus(x - shift).sub_(x, alpha=SLOPE).sub_(offset)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        return (x - ctx.shift).sigmoid_().sub_(SLOPE).mul_(grad), None, None


@torch.jit.unused
def _trained_swoosh(x: torch.Tensor, shift: float, offset: float) -> torch.Tensor:
    """Compute `swoosh` with the gradient of `_Swoosh`, which TorchScript does not know."""
    return _Swoosh.apply(x, shift, offset)


def swoosh(x: torch.Tensor, shift: float, offset: float, slope: float = SLOPE) -> torch.Tensor:
    """Compute log(1 + exp(x - shift)) - 0.08 x - offset (section 3.3)."""
    if x.requires_grad:
        return _trained_swoosh(x, shift, offset)
    return softplus(x - shift) - slope * x - offset


def swoosh_l(x: torch.Tensor) -> torch.Tensor:
    """Compute SwooshL: for modules that are normally off, with a small slope at 0."""
    return swoosh(x, 4.0, 0.035)


def swoosh_r(x: torch.Tensor) -> torch.Tensor:
    """Compute SwooshR, which is 0 at 0."""
    return swoosh(x, 1.0, 0.313261687)


class SwooshR(nn.Module):
    """The activation SwooshR as a module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply SwooshR to x of any shape."""
        return swoosh_r(x)


def scaled_linear(inputs: int, outputs: int, scale: float, bias: bool = True) -> nn.Linear:
    """Return a linear layer with initial weights `scale` times as large as torch's."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        layer.weight.mul_(scale)
        if bias:
            nn.init.uniform_(layer.bias, -0.1 * scale, 0.1 * scale)

    return layer


class BiasNorm(nn.Module):
    """Divide by the root mean square of the input minus a learned bias (section 3.2), so that
    lengths can be kept.
    """

    LARGEST_LOG_SCALE = 1.5

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.randn(dim) * 1e-4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise (…, D) -> (…, D)."""
        log_scale = self.limited() if self.training else self.log_scale
        return x * ((x - self.bias).square().mean(dim=-1, keepdim=True).rsqrt() * log_scale.exp())

    @torch.jit.unused
    def limited(self) -> torch.Tensor:
        """Return the logarithm of the scale, which training keeps in range."""
        return kept_in_range(self.log_scale, -self.LARGEST_LOG_SCALE, self.LARGEST_LOG_SCALE)


class ScheduledDropout(Clocked):
    """Dropout whose rate falls to a third within 20,000 steps."""

    def __init__(self, clock: Clock, rate: float, shared_dim: int | None = None) -> None:
        """Create a dropout; `shared_dim`: a dimension in which all values are dropped together."""
        super().__init__(clock)
        self.rate = Schedule(clock, (0.0, min(3.0 * rate, 0.9)), (20000.0, rate))
        self.shared_dim = shared_dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop values of x of any shape in training."""
        return self.dropped(x) if self.training else x

    @torch.jit.unused
    def dropped(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with some values 0 and the others scaled up."""
        if self.shared_dim is None:
            return dropout(x, self.rate())
        shape = list(x.shape)
        shape[self.shared_dim] = 1
        return x * dropout(x.new_ones(shape), self.rate())


class Bypass(Clocked):
    """A learned mean of the input and the output of a layer, for each channel; training may skip
    the layer.
    """

    def __init__(self, clock: Clock, dim: int, skip_rate: Schedule | None = None) -> None:
        super().__init__(clock)
        self.bypass_scale = nn.Parameter(torch.full((dim,), 0.5))
        self.skip_rate = skip_rate
        self.least = Schedule(clock, (0.0, 0.9), (20000.0, 0.2))

    def forward(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """Mix input and output (B, T, D) -> (B, T, D)."""
        scale = self.drawn_scale(before) if self.training else self.bypass_scale
        return before + (after - before) * scale

    @torch.jit.unused
    def drawn_scale(self, x: torch.Tensor) -> torch.Tensor:
        """Return the share of the output (D,), or (B, 1, D) with zeros for utterances that skip the
        layer.
        """
        scale = kept_in_range(self.bypass_scale, self.least(), 1.0)
        rate = 0.0 if self.skip_rate is None else self.skip_rate()
        return scale * kept_rows(x, rate) if rate > 0.0 else scale


class Downsample(nn.Module):
    """Lower the frame rate by a learned mean of neighbouring frames."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(factor))
        self.factor = factor

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        """Lower the rate of frames x (B, T, D) -> (B, ceil(T / factor), D); `lengths` (B,): frames
        after them count as the last one.
        """
        if lengths is not None:
            last_frame = (lengths - 1).clamp(min=0).view(-1, 1, 1)
            frame = torch.arange(x.size(1), device=x.device).view(1, -1, 1)
            last = x.gather(1, last_frame.expand(-1, -1, x.size(2)))
            x = torch.where(frame > last_frame, last, x)

        missing = (self.factor - x.size(1) % self.factor) % self.factor
        x = torch.cat((x, x[:, -1:].expand(-1, missing, -1)), dim=1)
        groups = x.view(x.size(0), -1, self.factor, x.size(2))
        return (groups * self.bias.softmax(dim=0).unsqueeze(1)).sum(dim=2)


def relative_positions(before: int, size: int, dim: int, like: torch.Tensor) -> torch.Tensor:
    """Return encodings (before + 2 * size, dim) of the distances -(before + size - 1) .. size, key
    minus query.

    Distances are compressed by a logarithm, then by an arctangent.
    """
    distance = torch.arange(
        1 - before - size, size + 1, device=like.device, dtype=torch.float32
    ).unsqueeze(1)  # (before + 2 * size, 1)
    width = math.sqrt(dim)
    compressed = width * distance.sign() * ((distance.abs() + width).log() - math.log(width))
    angle = (compressed / (dim / (2.0 * math.pi))).atan() * torch.arange(
        1, dim // 2 + 1, device=like.device
    )
    waves = torch.stack((angle.cos(), angle.sin()), dim=2).flatten(1)  # (…, dim)

    # As in icefall, the last wave is a constant.
    return pad(waves[:, :-1], (0, 1), value=1.0).to(like.dtype)


def shifted(scores: torch.Tensor, keys: int) -> torch.Tensor:
    """Return the scores by key (B, H, Q, keys) of the scores by distance (B, H, Q, before + 2 * Q),
    whose distances are those of `relative_positions`.
    """
    # Row i begins at distance Q - 1 - i. In `flat`, rows that are one shorter begin one place earlier
    # each, so a view from place Q - 1 on cuts all rows there.
    queries, distances = scores.size(2), scores.size(3)
    flat = scores.flatten(2)[:, :, queries - 1 :]
    flat = flat[:, :, : queries * (distances - 1)]
    return flat.view(scores.size(0), scores.size(1), queries, distances - 1)[:, :, :, :keys]
