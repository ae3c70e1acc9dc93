"""The last operator: examples to one padded batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wenet_uio.dataset.types import Batch, Example

PAD_LABEL = -1
"""What the losses ignore."""


def pad(examples: Sequence[Example], feature_dim: int) -> Batch:
    """Pad examples, longest first, into one batch; of no examples, an empty one of `feature_dim` bins."""
    examples = sorted(examples, key=lambda example: len(example.feats), reverse=True)
    lengths = [len(example.feats) for example in examples]
    label_lengths = [len(example.labels) for example in examples]
    feats = torch.zeros(len(examples), max(lengths, default=0), feature_dim)
    target = torch.full((len(examples), max(label_lengths, default=0)), PAD_LABEL, dtype=torch.int64)
    for row, example in enumerate(examples):
        feats[row, : lengths[row]] = example.feats
        target[row, : label_lengths[row]] = torch.tensor(example.labels, dtype=torch.int64)
    return Batch(
        keys=tuple(example.key for example in examples),
        feats=feats,
        feats_lengths=torch.tensor(lengths, dtype=torch.int64),
        target=target,
        target_lengths=torch.tensor(label_lengths, dtype=torch.int64),
        texts=tuple(example.text for example in examples),
    )
