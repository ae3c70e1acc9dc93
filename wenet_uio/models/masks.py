"""Attention masks. Boolean masks are True where attention is allowed."""

from __future__ import annotations

import torch

ALL_FRAMES = 0
"""A chunk size: all frames see each other, also in training of a model that draws chunks."""
MAX_DYNAMIC_CHUNK = 25
"""Largest chunk in encoder frames: 1 s at a frame shift of 10 ms and a subsampling rate of 4."""


def length_mask(lengths: torch.Tensor, max_length: int) -> torch.Tensor:
    """Return the mask (B, max_length) of lengths (B,): True within each length."""
    return torch.arange(max_length, device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)


def reduced_lengths(lengths: torch.Tensor, factor: int) -> torch.Tensor:
    """Return lengths (B,) at a rate that is lower by `factor`, rounded up."""
    return torch.div(lengths + factor - 1, factor, rounding_mode="floor")


def selected_frames(
    frames: torch.Tensor, selected: torch.Tensor, in_full_length: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep only the selected frames of each utterance.

    Args:
        frames: (B, T, D).
        selected: (B, T), True for a frame that is kept.
        in_full_length: pad to T instead of the largest number of kept frames, for which the host
            waits.

    Returns:
        Frames (B, T', D), zeros beyond their numbers, and these numbers (B,). T' is at least 1.
    """
    counts = selected.sum(dim=1)
    length = frames.size(1) if in_full_length else max(1, int(counts.max()))
    # A stable sort puts the places of the selected frames first and leaves them in their order.
    places = (~selected).int().argsort(dim=1, stable=True)[:, :length]  # (B, T')
    kept = frames.gather(1, places.unsqueeze(2).expand(-1, -1, frames.size(2)))  # (B, T', D)
    is_selected = length_mask(counts, length)

    return kept * is_selected.unsqueeze(2), counts


def causal_mask(size: int, device: torch.device) -> torch.Tensor:
    """Return the mask (size, size): position i sees positions 0 .. i."""
    place = torch.arange(size, device=device)
    return place.unsqueeze(1) >= place.unsqueeze(0)


def chunk_mask(
    size: int, chunk_size: int, num_left_chunks: int, device: torch.device
) -> torch.Tensor:
    """Return the mask (size, size): a frame sees its own chunk and `num_left_chunks` chunks before
    it (negative: all).
    """
    chunk = torch.arange(size, device=device) // chunk_size  # (size,): number of each frame's chunk
    chunks_back = chunk.unsqueeze(1) - chunk.unsqueeze(0)  # (size, size): from query to key
    if num_left_chunks < 0:
        return chunks_back >= 0
    return (chunks_back >= 0) & (chunks_back <= num_left_chunks)


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Turn a mask (B, Q, K) into a term (B, 1, Q, K) of the attention scores: 0 if allowed, else
    -30000.

    A mask of numbers has the terms already. -30000 fits in float16, and its exp is 0. Unlike -inf,
    it gives no NaN for a row that is masked completely, such as a padded frame outside of the left
    context.
    """
    if mask.is_floating_point():
        return mask.unsqueeze(1).to(dtype)

    allowed = mask.unsqueeze(1)
    zeros = torch.zeros(allowed.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~allowed, -30000.0)


def draw_chunk(max_length: int, dynamic_left: bool) -> tuple[int, int]:
    """Draw (chunk size, left chunks) for one training batch of `max_length` encoder frames (U2,
    Zhang et al. 2020).

    About half of the draws give full context, the others a chunk of 1 to 25 frames. Left chunks are
    -1 (all) unless `dynamic_left`. Uses torch's global generator, which training seeds for each
    step.
    """
    if max_length < 2:
        return max(max_length, 1), -1

    drawn = int(torch.randint(1, max_length, (1,)))
    if drawn > max_length // 2:
        return max_length, -1

    chunk_size = drawn % MAX_DYNAMIC_CHUNK + 1
    if not dynamic_left:
        return chunk_size, -1

    most_left_chunks = (max_length - 1) // chunk_size  # before the chunk of the last frame
    return chunk_size, int(torch.randint(0, most_left_chunks + 1, (1,)))
