"""Padding: the last step of the chain, from examples to one batch."""

from __future__ import annotations

from collections.abc import Sequence
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
    examples = sorted(examples, key=_length, reverse=True)
    with_audio = _with_features(examples)
    lengths = [_frames(example) for example in with_audio]
    is_deferred = bool(with_audio) and with_audio[0].deferred is not None
    if any((example.deferred is not None) != is_deferred for example in with_audio):
        names = f"{with_audio[0].key} and {with_audio[-1].key}"
        raise ValueError(
            f"audio and stored features in one batch (of {names}) need feature_device: worker"
        )

    labels = _labels(examples)
    size = len(examples)
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "feats": (
            (len(with_audio), max(lengths, default=0), 0 if is_deferred else feature_dim),
            torch.float32,
        ),
        "feats_lengths": ((len(with_audio),), torch.int64),
    }
    if with_audio and with_audio[0].other_feats is not None:
        shapes["other_feats"] = shapes["feats"]

    for name, rows in labels.items():
        shapes[name] = ((size, max(map(len, rows), default=0)), torch.int64)
        shapes[f"{name}_lengths"] = ((size,), torch.int64)

    tensors = empty_tensors(shapes)
    for name in ("feats", "other_feats"):
        if name in tensors:
            _fill_feats(tensors[name], [getattr(example, name) for example in with_audio])

    tensors["feats_lengths"].copy_(torch.tensor(lengths, dtype=torch.int64))
    for name, rows in labels.items():
        _fill_labels(tensors[name], tensors[f"{name}_lengths"], rows)

    kind = PairBatch if "source" in tensors else Batch
    fields: dict[str, Any] = dict(tensors)
    return kind(
        **fields,
        keys=tuple(example.key for example in examples),
        texts=tuple(example.text for example in examples),
        extra=tuple(example.extra for example in examples),
        deferred=defer_batch(with_audio) if is_deferred else None,
    )


def _with_features(examples: Sequence[Example]) -> Sequence[Example]:
    """Return the examples; of conversations, their audio turns."""
    conversations = [example for example in examples if isinstance(example, ConversationExample)]
    if not conversations:
        return examples
    return [turn for example in conversations for turn in example.turns]


def _labels(examples: Sequence[Example]) -> dict[str, list[tuple[int, ...]]]:
    labels = {"target": [example.labels for example in examples]}
    if any(isinstance(example, PairExample) for example in examples):
        labels["source"] = [
            example.source_labels if isinstance(example, PairExample) else ()
            for example in examples
        ]
    return labels


def _fill_feats(padded: torch.Tensor, rows: Sequence[torch.Tensor | None]) -> None:
    for row, feats in zip(padded, rows, strict=True):
        if feats is not None:
            row[: len(feats)] = feats
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


def _length(example: Example) -> int:
    return _frames(example) or len(example.labels)
