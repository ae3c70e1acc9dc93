"""Dropout, and attention with dropout, whose draws are fast on CPUs.

On a CPU torch draws a random number for each element, which took 15 % of a training step. Here a
64-bit number serves four elements.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import pad, scaled_dot_product_attention

ALIGNED = 8
"""The widths of heads that the kernels of accelerators take are multiples of this."""
STEPS = 1 << 16
"""A rate of dropout is rounded to a multiple of 1 / STEPS on a CPU."""


class Dropout(nn.Dropout):
    """nn.Dropout with the draws of `dropped`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Drop values in training: (…) -> (…)."""
        return dropped(input, self.p) if self.training and self.p > 0 else input


@torch.jit.unused
def dropped(x: torch.Tensor, rate: float) -> torch.Tensor:
    """Set a share `rate` of the elements to 0, and multiply the others by 1 / (1 - rate)."""
    dropped_steps = round(rate * STEPS)
    if x.device.type != "cpu" or dropped_steps == STEPS or torch.compiler.is_compiling():
        return functional.dropout(x, rate)

    # Each draw of 64 bits, over all numbers of int64, is read as four of int16.
    count = -(-x.numel() // 4)
    draws = torch.empty(count, dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)

    # An int16 is one of STEPS numbers from -STEPS / 2: the lowest `dropped_steps` of them drop an
    # element. The mask is 0 or 1 in the type of x: the product with bools is five times as slow.
    draws = draws[: x.numel()].view(x.shape)
    first_kept = dropped_steps - STEPS // 2
    kept = torch.ge(draws, first_kept, out=torch.empty(x.shape, dtype=x.dtype))
    return x * kept.mul_(STEPS / (STEPS - dropped_steps))


def attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    rate: float,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend with queries (B, H, Q, d) to keys and values (B, H, K, d) -> (B, H, Q, d).

    Args:
        bias: added to the scores, broadcasts to (B, H, Q, K).
        rate: share of the weights of attention that is dropped.
        scale: factor of the products of queries and keys; None: 1 / sqrt(d).
    """
    # Torch's own attention is slow on a CPU if the bias needs a gradient.
    # torch documents is_scripting, but torch.jit.__all__ does not list it.
    fast = torch.jit.is_scripting() or bias is None or not bias.requires_grad  # pyright: ignore[reportPrivateImportUsage]
    if rate == 0.0 and fast:
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)

    factor = query.size(3) ** -0.5 if scale is None else scale
    return _attended_in_training(query, key, value, bias, rate, factor)


@torch.jit.unused
def _attended_in_training(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    rate: float,
    scale: float,
) -> torch.Tensor:
    """Attend with dropout, and with a gradient of the bias; shapes as in `attended`."""
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=rate, scale=scale
        )

    scores = torch.matmul(query * scale, key.transpose(2, 3))  # (B, H, Q, K)
    if bias is not None:
        scores = scores + bias

    weights = scores.softmax(dim=3)
    if rate > 0.0:
        weights = dropped(weights, rate)
    return torch.matmul(weights, value)


@torch.jit.unused
def with_term(
    query: torch.Tensor, key: torch.Tensor, term: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries (B, H, Q, d) and keys (B, H, K, d) with features whose product adds `term` (1,
    H, K, 1) to the scores.

    A bias would do the same, but its gradient has the size of all scores and keeps accelerators
    from fast kernels.
    """
    ones = query.new_zeros(*query.shape[:3], ALIGNED)
    ones[..., 0] = 1.0
    terms = pad(term.to(key.dtype), (0, ALIGNED - 1)).expand(key.size(0), -1, -1, -1)
    return torch.cat((query, ones), dim=3), torch.cat((key, terms), dim=3)
