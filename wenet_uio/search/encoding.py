"""From features to encoder frames, as the options of decoding ask for."""

from __future__ import annotations

import torch

from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.types import DecodeOptions


def encode_in_chunks(
    model: DecodingModel, feats: torch.Tensor, feats_lengths: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode features (B, T, F) of lengths (B,) with full context or in chunks.

    See ASRModel.encode.
    """
    return model.encode(
        feats,
        feats_lengths,
        options.decoding_chunk_size,
        options.num_decoding_left_chunks,
        options.simulate_streaming,
    )
