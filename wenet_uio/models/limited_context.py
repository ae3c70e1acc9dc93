"""Attention of each frame to its neighbours: `att_context_size` of the encoders."""

from __future__ import annotations

import torch

from wenet_uio.models.dropout import attended
from wenet_uio.models.masks import additive

LEAST_BLOCK = 64
"""Least number of queries that are computed together."""


def in_blocks(context: tuple[int, int]) -> tuple[int, int, int]:
    """Return the limits left and right, and the size of a block: a larger one computes more scores
    that nobody sees.
    """
    before, after = context
    return before, after, max(LEAST_BLOCK, before + after)


@torch.jit.script_if_tracing
def attended_nearby(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    context: tuple[int, int, int],
    rate: float,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend with queries (B, H, Q, d) to the keys and values (B, H, K, d) around each -> (B, H, Q,
    d).

    Blocks of neighbouring queries are computed one after another, each with the keys that its
    queries see. So with two limits the scores take memory for one block, whatever the length.

    Args:
        bias: added to the scores, broadcasts to (B, H, 1, K); None: nothing.
        context: number of keys that a query sees before its own, and after it; negative: all. The
            last query and the last key belong together. The third number is that of the queries of
            a block.
        rate: share of the weights of attention that is dropped.
        scale: as in `attended`.
    """
    left, right, block = context
    queries, keys = query.size(2), key.size(2)
    before = keys - queries
    places = torch.arange(keys, device=query.device)
    blocks: list[torch.Tensor] = []

    for start in range(0, queries, block):
        end = min(start + block, queries)
        first = 0 if left < 0 else max(before + start - left, 0)
        last = keys if right < 0 else min(before + end + right, keys)
        distance = places[first:last] - places[before + start : before + end].unsqueeze(1)
        seen = torch.ones_like(distance, dtype=torch.bool)
        if left >= 0:
            seen = seen & (distance >= -left)
        if right >= 0:
            seen = seen & (distance <= right)

        scores = additive(seen.unsqueeze(0), query.dtype)
        if bias is not None:
            scores = scores + bias[:, :, :, first:last]

        near = key[:, :, first:last], value[:, :, first:last]
        blocks.append(attended(query[:, :, start:end], near[0], near[1], scores, rate, scale))

    # The ONNX exporter does not know how many dimensions a concatenated list has.
    return torch.cat(blocks, dim=2).view(query.size(0), query.size(1), queries, value.size(3))
