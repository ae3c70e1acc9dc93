"""What keeps the activations of a Zipformer in range while it trains (Yao et al. 2023, sections 3.3
and 3.4).

Balancers and whiteners do not change the forward pass: they add to the gradient. Random draws are
of torch's generator of the CPU, which training seeds for each step.
"""

import math
from typing import Any

import torch
from torch import nn

from wenet_uio.models.clock import Clock, Clocked, Schedule

TINY = 1e-20
ROUNDING = 1e-6
"""A variance below this share of the mean square is rounding error of fp32: the channel counts as
constant."""


def constant_schedule(value: float) -> Schedule:
    """Return a schedule that does not change."""
    return Schedule(Clock(), (0.0, value))


def happens(probability: float) -> bool:
    """Draw an event."""
    return probability > 0.0 and bool(torch.rand(()) < probability)


def kept_rows(x: torch.Tensor, rate: float) -> torch.Tensor:
    """Return (B, 1, …) of the dimensions of x (B, …): 0 for a share `rate` of the rows, drawn at
    random, else 1.
    """
    kept = torch.rand(x.size(0)) >= rate
    return kept.to(x.device, x.dtype, non_blocking=True).view(-1, *[1] * (x.dim() - 1))


class _InRange(torch.autograd.Function):
    """The gradient of values outside of a range pushes them back, whatever its sign was."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: float, high: float) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x)
        ctx.range = (low, high)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,), (low, high) = ctx.saved_tensors, ctx.range
        grad = torch.where(x < low, -grad.abs(), grad)
        return torch.where(x > high, grad.abs(), grad), None, None


def kept_in_range(
    x: torch.Tensor, low: float, high: float, probability: float = 0.6
) -> torch.Tensor:
    """Return the weight `x`. In some steps, the gradient pushes values outside of the range
    back.
    """
    return _InRange.apply(x, low, high) if happens(probability) else x


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad * ctx.factor, None


class ScaleGradient(nn.Module):
    """Scale the gradient, so that those of the first convolution fit in half precision."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, of any shape."""
        return self.scaled(x) if self.training else x

    @torch.jit.unused
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, whose gradient is scaled."""
        return _ScaledGradient.apply(x, self.factor)


class _LimitedScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, limit: float, penalty: float) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(torch.where(x.abs() > limit, x.sign(), 0.0).to(torch.int8))
        ctx.penalty = penalty
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (outside,) = ctx.saved_tensors
        return grad + ctx.penalty * outside, None, None


def limited_scores(x: torch.Tensor, limit: float = 25.0, penalty: float = 1e-4) -> torch.Tensor:
    """Return attention scores x (B, …). In a tenth of the steps, the loss is larger for scores
    beyond +-`limit`.

    The penalty is for a loss that is a sum over the batch; here the loss is a mean.
    """
    return _LimitedScores.apply(x, limit, penalty / x.size(0)) if happens(0.1) else x


class _Balanced(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        x: torch.Tensor,
        channel_dim: int,
        limits: tuple[float, float, float, float],
        strength: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.settings = (channel_dim % x.dim(), limits, strength)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,), (channel_dim, limits, strength) = ctx.saved_tensors, ctx.settings
        others = [dim for dim in range(x.dim()) if dim != channel_dim]
        mean = x.mean(dim=others, keepdim=True, dtype=torch.float32)
        square = x.float().square().mean(dim=others, keepdim=True)
        shift, slope = balancer_gradient(mean, square, limits)
        if x.device.type == "cpu" and not shift.any() and not slope.any():
            return grad, None, None, None

        change = torch.addcmul(strength * shift, x.float(), strength * slope)
        return torch.addcmul(grad, grad.abs(), change.to(grad.dtype)), None, None, None


def balancer_gradient(
    mean: torch.Tensor, square: torch.Tensor, limits: tuple[float, float, float, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of a balancer's loss with respect to x: shift + slope * x in each
    channel, scaled to a mean square of 1.

    The loss of a channel is |m - m'| + |log(r' / r)|: m is its mean over its standard deviation, r
    its root mean square, and m', r' are these within the limits. A standard deviation or r at its
    lower bound has no gradient, as with torch's clamp. Both results are 0 for a channel within the
    limits, and finite for every finite channel.

    Args:
        mean, square: means of x and of x squared, of each channel.
        limits: least and largest m, least and largest r.
    """
    low_mean, high_mean, low_rms, high_rms = limits
    variance = square - mean.square()
    bounded = torch.maximum(variance, ROUNDING * square).clamp(min=TINY)
    deviation, rms = bounded.sqrt(), square.clamp(min=TINY).sqrt()
    relative = mean / deviation
    outside = (relative > high_mean).float() - (relative < low_mean).float()
    beyond = ((rms > high_rms).float() - (rms < low_rms).float()) * (square > TINY)
    # With z = (x - mean) / deviation, dm/dx = (1 - m * z) / deviation and d log(r)/dx = x / r ** 2,
    # both over their number. Times the deviation they are at + by * z, without the large numbers of
    # small deviations.
    at = outside + beyond * (deviation / rms) * (mean / rms)
    by = beyond * (deviation / rms).square() - outside * relative * (variance >= bounded)
    size = (at.square() + by.square()).sqrt().clamp(min=TINY)
    at, by = at / size, by / size

    return at - by * relative, by / deviation


def mean_of_share(positive: float) -> float:
    """Return the mean over standard deviation of a channel of which this share is positive (Yao et
    al. 2023, section 3.4).
    """
    eps = 1e-10
    return (math.log(2 * positive + eps) - math.log(2 - 2 * positive + eps)) / (
        2 * math.sqrt(math.pi) * math.log(2)
    )


class Balancer(Clocked):
    """Keeps in each channel the share of positive values, and the mean absolute value, within
    limits.

    In a share of the steps, which falls from 1/2 to 1/8, the gradient of a loss on channels outside
    is added: 0.04 times as large as the gradient itself.
    """

    STRENGTH = 0.04

    def __init__(
        self,
        clock: Clock,
        positive: tuple[Schedule | float, Schedule | float],
        absolute: tuple[Schedule | float, Schedule | float],
        channel_dim: int = -1,
        probability: float | None = None,
    ) -> None:
        super().__init__(clock)
        falling = Schedule(clock, (0.0, 0.5), (8000.0, 0.125))
        self.probability = falling if probability is None else constant_schedule(probability)
        self.limits = [
            limit if isinstance(limit, Schedule) else constant_schedule(limit)
            for limit in (*positive, *absolute)
        ]
        self.channel_dim = channel_dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, of any shape."""
        return self.balanced(x) if self.training else x

    @torch.jit.unused
    def balanced(self, x: torch.Tensor) -> torch.Tensor:
        """Return x unchanged; in some steps its gradient pushes channels back into the limits."""
        if not happens(self.probability()) or not x.requires_grad:
            return x

        least, most, low, high = (limit() for limit in self.limits)
        # Root mean square over mean absolute value of a normal distribution
        rms = math.sqrt(math.pi / 2)
        limits = (mean_of_share(least), mean_of_share(most), rms * low, rms * high)
        return _Balanced.apply(x, self.channel_dim, limits, self.STRENGTH)


class _Whitened(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, groups: int, limit: float, strength: float
    ) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x)
        ctx.settings = (groups, limit, strength)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,), (groups, limit, strength) = ctx.saved_tensors, ctx.settings
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            x = x.detach().float().requires_grad_()
            metric = whiteness(x, groups)
            # An accelerator would have to wait for this number
            if x.device.type == "cpu" and metric < limit:
                return grad, None, None, None

            (change,) = torch.autograd.grad(metric, x)

        factor = strength * grad.float().norm() / (change.norm() + TINY)
        change = (change * factor).masked_fill(metric < limit, 0.0)
        return grad + change.to(grad.dtype), None, None, None


def whiteness(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Return how unequal the eigenvalues of the covariance of x (…, C) are, () of 1 or more.

    It is the mean of the squared eigenvalues over the square of their mean. Channels of different
    groups, of which there are `groups`, have no covariance here.
    """
    x = x.reshape(-1, groups, x.size(-1) // groups).transpose(0, 1)
    x = x - x.mean(dim=1, keepdim=True)
    covariance = torch.matmul(x.transpose(1, 2), x)
    # The diagonal adds up to the eigenvalues, and all squares of the matrix to their squares.
    mean = covariance.diagonal(dim1=1, dim2=2).mean()
    return covariance.square().sum() / (groups * x.size(2)) / (mean.square() + TINY)


class Whitener(Clocked):
    """Adds to the gradient that of `whiteness`, where this is above a limit, in a quarter of the
    steps.
    """

    PROBABILITY = 0.25

    def __init__(
        self, clock: Clock, limit: float, last: float, strength: float = 0.01, groups: int = 1
    ) -> None:
        """Create a whitener.

        Args:
            limit: of `whiteness` at the start; after 20,000 steps it is `last`.
            strength: norm of the addition over that of the gradient.
        """
        super().__init__(clock)
        self.limit = Schedule(clock, (0.0, limit), (20000.0, last))
        self.strength, self.groups = strength, groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x (…, C)."""
        return self.whitened(x) if self.training else x

    @torch.jit.unused
    def whitened(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, whose gradient may have an addition."""
        if not happens(self.PROBABILITY) or not x.requires_grad:
            return x
        return _Whitened.apply(x, self.groups, self.limit(), self.strength)
