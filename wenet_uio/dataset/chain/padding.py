"""The last operator: examples to one padded batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wenet_uio.dataset.batch_memory import empty_tensors
from wenet_uio.dataset.chain.deferred import defer_batch
from wenet_uio.dataset.types import Batch, Example

PAD_LABEL = -1
"""What the losses ignore."""


def pad(examples: Sequence[Example], feature_dim: int) -> Batch:
    """Pad examples, longest first, into one batch; of no examples, an empty one of `feature_dim` bins."""
    examples = sorted(examples, key=_length, reverse=True)
    lengths = [_frames(example) for example in examples]
    is_deferred = bool(examples) and examples[0].deferred is not None
    labels = {"target": [example.labels for example in examples]}
    if any(example.source is not None for example in examples):
        labels["source"] = [example.source_labels for example in examples]
    size = len(examples)
    shapes = {
        "feats": ((size, max(lengths, default=0), 0 if is_deferred else feature_dim), torch.float32),
        "feats_lengths": ((size,), torch.int64),
    }
    for name, rows in labels.items():
        shapes[name] = ((size, max(map(len, rows), default=0)), torch.int64)
        shapes[f"{name}_lengths"] = ((size,), torch.int64)
    tensors = empty_tensors(shapes)
    for row, length, example in zip(tensors["feats"], lengths, examples, strict=True):
        if example.feats is not None:
            row[:length] = example.feats
            row[length:] = 0
    tensors["feats_lengths"].copy_(torch.tensor(lengths, dtype=torch.int64))
    for name, rows in labels.items():
        longest = tensors[name].size(1)
        padded = [[*row, *[PAD_LABEL] * (longest - len(row))] for row in rows]
        tensors[name].copy_(torch.tensor(padded, dtype=torch.int64).view(size, longest))
        tensors[f"{name}_lengths"].copy_(torch.tensor([len(row) for row in rows], dtype=torch.int64))
    return Batch(
        keys=tuple(example.key for example in examples),
        **tensors,
        texts=tuple(example.text for example in examples),
        extra=tuple(example.extra for example in examples),
        deferred=defer_batch(examples) if is_deferred else None,
    )


def _frames(example: Example) -> int:
    if example.deferred is not None:
        return example.deferred.frames
    return 0 if example.feats is None else len(example.feats)


def _length(example: Example) -> int:
    return _frames(example) or len(example.labels)
