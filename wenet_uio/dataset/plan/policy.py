"""`Policy`: what the planner needs to know of a batch policy; the policies are in `policies.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

NO_BUCKET = -1
"""Bucket of samples that may share a batch with any other sample that has audio."""
TEXT_BUCKET = 1 << 20
"""Bucket of text without audio."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of samples after speed perturbation; one row per sample."""

    frames: np.ndarray
    milliseconds: np.ndarray
    tokens: np.ndarray
    """Tokens if the index counts tokens, otherwise characters."""
    text_only: np.ndarray
    """bool: samples without audio. Their frames are their tokens, so that they are sorted by
    tokens."""
    entries: np.ndarray | None = None
    """Entry of a mixture that each sample belongs to; only policies by entry read them."""

    def of(self, chosen: np.ndarray) -> Lengths:
        """Return the lengths of some samples."""
        return Lengths(
            self.frames[chosen],
            self.milliseconds[chosen],
            self.tokens[chosen],
            self.text_only[chosen],
        )


class Policy(ABC):
    """What the planner needs to know of a policy. Subclasses are frozen dataclasses."""

    bound: int
    """Largest padded cost of a batch."""
    fill: float = 0.94
    """Planned fill of a batch, as a share of the bound, for groups whose batches are counted before
    they are cut. A higher share would split more batches."""
    needs_tokens: bool = False
    """Whether `units` reads the number of tokens."""
    has_batches_of_text: bool = False
    """Whether the policy says how to batch text without audio."""

    @property
    def target(self) -> int:
        """Padded cost up to which batches are filled; a sample beyond the target has a batch of its
        own.
        """
        return self.bound

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """State the kind of the policy and the values that decide its batches, as JSON.

        Plans are resumed under the same identity only, so names in it must not change.
        """

    @abstractmethod
    def units(self, lengths: Lengths) -> np.ndarray:
        """Return units of each sample, int64; more than the bound for a sample that no batch may
        hold.
        """

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """Return the bucket of each sample: samples of different buckets share no piece of a batch.
        NO_BUCKET fits all audio.
        """
        return np.where(lengths.text_only, TEXT_BUCKET, NO_BUCKET)

    def table_units(
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        """Return units of whole shards from their totals; None if the units of each sample must be
        added up.
        """
        return None


@dataclass(frozen=True)
class ChangedPolicy(Policy):
    """Another policy, which a subclass changes."""

    policy: Policy

    @property
    def bound(self) -> int:
        """As the policy says, and so are the other members."""
        return self.policy.bound

    @property
    def target(self) -> int:  # noqa: D102
        return self.policy.target

    @property
    def fill(self) -> float:  # noqa: D102
        return self.policy.fill

    @property
    def needs_tokens(self) -> bool:  # noqa: D102
        return self.policy.needs_tokens

    @property
    def has_batches_of_text(self) -> bool:  # noqa: D102
        return self.policy.has_batches_of_text

    def units(self, lengths: Lengths) -> np.ndarray:  # noqa: D102
        return self.policy.units(lengths)

    def buckets(self, lengths: Lengths) -> np.ndarray:  # noqa: D102
        return self.policy.buckets(lengths)

    def table_units(  # noqa: D102
        self, samples: np.ndarray, seconds: np.ndarray, frames: np.ndarray
    ) -> np.ndarray | None:
        return self.policy.table_units(samples, seconds, frames)
