"""The last operator: examples to one padded batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wenet_uio.dataset.types import Batch, Example

PAD_LABEL = -1
"""What the losses ignore."""


def pad(examples: Sequence[Example], feature_dim: int) -> Batch:
    """Pad examples, longest first, into one batch; of no examples, an empty one of `feature_dim` bins."""
    examples = sorted(examples, key=_length, reverse=True)
    lengths = [0 if example.feats is None else len(example.feats) for example in examples]
    feats = torch.zeros(len(examples), max(lengths, default=0), feature_dim)
    for row, example in enumerate(examples):
        if example.feats is not None:
            feats[row, : lengths[row]] = example.feats
    target, target_lengths = _pad_labels([example.labels for example in examples])
    source = source_lengths = None
    if any(example.source is not None for example in examples):
        source, source_lengths = _pad_labels([example.source_labels for example in examples])
    return Batch(
        keys=tuple(example.key for example in examples),
        feats=feats,
        feats_lengths=torch.tensor(lengths, dtype=torch.int64),
        target=target,
        target_lengths=target_lengths,
        texts=tuple(example.text for example in examples),
        extra=tuple(example.extra for example in examples),
        source=source,
        source_lengths=source_lengths,
    )


def _pad_labels(labels: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels (B, U) padded with PAD_LABEL, and their lengths (B,)."""
    lengths = torch.tensor([len(row) for row in labels], dtype=torch.int64)
    padded = torch.full((len(labels), max(map(len, labels), default=0)), PAD_LABEL, dtype=torch.int64)
    for number, row in enumerate(labels):
        padded[number, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return padded, lengths


def _length(example: Example) -> int:
    return len(example.labels) if example.feats is None else len(example.feats)
