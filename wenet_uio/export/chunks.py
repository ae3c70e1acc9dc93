"""The chunks in which an export streams, and whether a model can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.chunks import fitting_chunk

DEFAULT_CHUNK = 16
"""Encoder frames."""
LEFT_CHUNKS = 4
"""Chunks of left context of a check in chunks."""


@dataclass(frozen=True)
class Chunks:
    """Chunk size and left context of a graph."""

    size: int = -1
    """Encoder frames of a chunk; -1: the whole utterance is one chunk."""
    left: int = -1
    """Chunks seen before the current chunk; -1: all."""

    @property
    def cache(self) -> int:
        """Encoder frames in a cache of fixed size; negative: the cache grows."""
        return self.size * self.left if self.size > 0 else -1


OFFLINE = Chunks()


def check_chunks(model: ASRModel, chunks: Chunks) -> None:
    """Check that the model can stream with `chunks`.

    Raises:
        ValueError: it cannot; the message has the reason.
    """
    traits = model.encoder.traits
    if chunks.size < 1:
        raise ValueError(f"--chunk_size: expected 1 or more encoder frames, found {chunks.size}")
    if traits.obstacle:
        raise ValueError(traits.obstacle)

    if not traits.trained_in_chunks:
        raise ValueError(
            "this model was trained with full context only; train with use_dynamic_chunk: true"
        )

    static = traits.static_chunk_size
    if static not in (0, chunks.size):
        raise ValueError(
            f"this model was trained with chunks of {static}: use --chunk_size {static}"
        )


def streaming_chunks(
    model: ASRModel, size: int | None, left: int, check: Callable[[ASRModel, Chunks], None]
) -> tuple[Chunks | None, str]:
    """Return chunks of `size` encoder frames; without a size, chunks that fit the model, or None
    and why it cannot stream.

    Args:
        left: chunks seen before the current chunk; -1: all.
        check: raises a ValueError for chunks that the model or its runtimes do not support.

    Raises:
        ValueError: of `check`, for a given size.
    """
    chunks = Chunks(size or fitting_chunk(model.encoder.traits, DEFAULT_CHUNK), left)
    try:
        check(model, chunks)
    except ValueError as error:
        if size is None:
            return None, str(error)
        raise

    return chunks, ""
