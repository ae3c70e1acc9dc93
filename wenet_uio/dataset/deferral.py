"""What stands for features that the accelerator will compute, in an Example and in a Batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch  # planning and packing run without torch


class DeferredExample(Protocol):
    """Replaces the features of an Example that the accelerator will compute; made by
    `chain.deferred.Defer`.
    """

    @property
    def frames(self) -> int:
        """Number of feature frames of the example."""
        ...


class DeferredFeatures(Protocol):
    """Replaces the features of a Batch that the accelerator will compute; see
    `chain.deferred.PaddedWaveforms`.
    """

    @property
    def dim(self) -> int:
        """Features per frame."""
        ...

    @property
    def waveforms(self) -> torch.Tensor:
        """(B, samples), padded with 0."""
        ...

    @property
    def lengths(self) -> torch.Tensor:
        """(B,) int64, samples."""
        ...

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name; the first dimension of each is B."""
        ...

    def with_tensors(self, tensors: Mapping[str, torch.Tensor | None]) -> DeferredFeatures:
        """Return a copy with other tensors."""
        ...

    def compute(self, feats_lengths: torch.Tensor, frames: int) -> tuple[torch.Tensor, ...]:
        """Return features (B, frames, dim) of each view, on the device of the tensors."""
        ...
