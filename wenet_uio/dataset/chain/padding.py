"""Padding: the last step of the chain, from examples to one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from wenet_uio.dataset.batch_memory import empty_tensors
from wenet_uio.dataset.chain.deferred import defer_batch
from wenet_uio.dataset.types import (
    Batch,
    ConversationExample,
    Example,
    PairBatch,
    PairExample,
)

PAD_LABEL = -1
"""The losses ignore this label."""


def pad(examples: Sequence[Example], feature_dim: int) -> Batch:
    """Pad examples into one batch, longest first; no examples make an empty batch of `feature_dim`
    bins.

    Raises:
        ValueError: the accelerator is to compute the features of some of the examples, and others
            have theirs.
    """
    examples = sorted(examples, key=_sort_length, reverse=True)
    feature_rows = _feature_rows(examples)
    is_deferred = _is_deferred(feature_rows)
    labels = {"target": [example.labels for example in examples]}
    if any(isinstance(example, PairExample) for example in examples):
        labels["source"] = [
            example.source_labels if isinstance(example, PairExample) else ()
            for example in examples
        ]

    # All tensors of a batch lie in one buffer, so their shapes are known before the first is filled.
    shapes = _tensor_shapes(feature_rows, labels, dim=0 if is_deferred else feature_dim)
    tensors = empty_tensors(shapes)
    for name in ("feats", "other_feats"):
        if name in tensors:
            _fill_feats(tensors[name], [getattr(row, name) for row in feature_rows])

    lengths = [_frames(row) for row in feature_rows]
    tensors["feats_lengths"].copy_(torch.tensor(lengths, dtype=torch.int64))
    for name, rows in labels.items():
        _fill_labels(tensors[name], tensors[f"{name}_lengths"], rows)

    batch_type = PairBatch if "source" in tensors else Batch
    fields: dict[str, Any] = dict(tensors)
    return batch_type(
        **fields,
        keys=tuple(example.key for example in examples),
        texts=tuple(example.text for example in examples),
        extra=tuple(example.extra for example in examples),
        deferred=defer_batch(feature_rows) if is_deferred else None,
    )


def _feature_rows(examples: Sequence[Example]) -> Sequence[Example]:
    """Return what has a row in `feats`: the examples, also text without audio; of conversations,
    their audio turns.
    """
    conversations = [example for example in examples if isinstance(example, ConversationExample)]
    if not conversations:
        return examples
    return [turn for example in conversations for turn in example.turns]


def _is_deferred(rows: Sequence[Example]) -> bool:
    """Tell whether the accelerator computes the features of `rows`.

    Raises:
        ValueError: of some rows only.
    """
    deferred = [row.key for row in rows if row.deferred is not None]
    stored = [row.key for row in rows if row.deferred is None]
    if deferred and stored:
        raise ValueError(
            f"audio and stored features in one batch (of {deferred[0]} and {stored[0]}) need "
            "feature_device: worker"
        )
    return bool(deferred)


def _tensor_shapes(
    feature_rows: Sequence[Example], labels: Mapping[str, Sequence[Sequence[int]]], *, dim: int
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return {name of a tensor of the batch: its shape and type}; `dim`: width of the features."""
    longest = max(map(_frames, feature_rows), default=0)
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "feats": ((len(feature_rows), longest, dim), torch.float32),
        "feats_lengths": ((len(feature_rows),), torch.int64),
    }
    if feature_rows and feature_rows[0].other_feats is not None:
        shapes["other_feats"] = shapes["feats"]

    for name, rows in labels.items():
        shapes[name] = ((len(rows), max(map(len, rows), default=0)), torch.int64)
        shapes[f"{name}_lengths"] = ((len(rows),), torch.int64)

    return shapes


def _fill_feats(padded: torch.Tensor, rows: Sequence[torch.Tensor | None]) -> None:
    # Arrays of the same memory: their slices take less time.
    for row, feats in zip(padded.numpy(), rows, strict=True):
        if feats is not None:
            row[: len(feats)] = feats.numpy()
            row[len(feats) :] = 0


def _fill_labels(
    labels: torch.Tensor, lengths: torch.Tensor, rows: Sequence[Sequence[int]]
) -> None:
    longest = labels.size(1)
    padded = [[*row, *[PAD_LABEL] * (longest - len(row))] for row in rows]
    labels.copy_(torch.tensor(padded, dtype=torch.int64).view(len(rows), longest))
    lengths.copy_(torch.tensor([len(row) for row in rows], dtype=torch.int64))


def _frames(example: Example) -> int:
    if example.deferred is not None:
        return example.deferred.frames
    return 0 if example.feats is None else len(example.feats)


def _sort_length(example: Example) -> int:
    return _frames(example) or len(example.labels)
