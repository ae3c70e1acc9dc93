"""How SenseVoice encodes: with queries of language and form before the speech."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wenet_uio.addons.families.sensevoice.model import SenseVoice
from wenet_uio.search.types import DecodeOptions


def encode(
    model: SenseVoice, feats: torch.Tensor, feats_lengths: torch.Tensor, options: DecodeOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode features (B, T, F) of lengths (B,) with the queries that the options ask for; see
    Family.encode.
    """
    languages = options.language
    if not isinstance(languages, tuple):
        languages = (languages,) * len(feats)
    return model.encode_asked(feats, feats_lengths, languages, itn=options.itn)


def check_search(model: SenseVoice, modes: Sequence[str], options: DecodeOptions) -> None:
    """Refuse chunks; see Family.check_search.

    Raises:
        ValueError: the options ask for chunks.
    """
    if options.decoding_chunk_size > 0 or options.simulate_streaming:
        raise ValueError(
            "decoding_chunk_size: a model sensevoice_small decodes with full context only"
        )
