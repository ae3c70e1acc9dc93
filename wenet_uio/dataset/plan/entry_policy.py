"""Batches of a mixture whose entries have a `batch_conf` of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wenet_uio.config.base import ConfigError
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.filters import FilterConf
from wenet_uio.dataset.plan.policies import (
    WHOLE,
    Lengths,
    Policy,
    TextPolicy,
    audio_tokens_of,
    policy_of,
)


@dataclass(frozen=True)
class ScaledPolicy(Policy):
    """Another policy with the bound WHOLE, so that its units can be compared with those of
    others.
    """

    policy: Policy
    bound: int = WHOLE

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        return {"kind": "scaled", "policy": self.policy.identity(), "bound": self.bound}

    @property
    def fill(self) -> float:
        """As the policy says."""
        return self.policy.fill

    @property
    def needs_tokens(self) -> bool:
        """As the policy says."""
        return self.policy.needs_tokens

    @property
    def has_batches_of_text(self) -> bool:
        """As the policy says."""
        return self.policy.has_batches_of_text

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return shares of WHOLE. They are rounded down, so that a batch of exactly the bound of
        the policy still fits.
        """
        units, largest = self.policy.units(lengths), self.policy.bound
        scaled = units * self.bound // largest
        return np.where(units > largest, self.bound + 1, scaled)

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """As the policy says."""
        return self.policy.buckets(lengths)


@dataclass(frozen=True)
class EntryPolicy(Policy):
    """A policy for each entry of a mixture; no batch holds samples of two entries."""

    policies: tuple[Policy, ...]
    bound: int = WHOLE

    def identity(self) -> dict[str, Any]:
        """Return the values that decide the batches, as JSON."""
        policies = [policy.identity() for policy in self.policies]
        return {"kind": "by_entry", "policies": policies, "bound": self.bound}

    @property
    def fill(self) -> float:
        """The smallest fill of the policies."""
        return min(policy.fill for policy in self.policies)

    @property
    def needs_tokens(self) -> bool:
        """Whether a policy needs tokens."""
        return any(policy.needs_tokens for policy in self.policies)

    def units(self, lengths: Lengths) -> np.ndarray:
        """Return what the policy of its entry says of each sample."""
        return self._ask_policies(lengths, "units")

    def buckets(self, lengths: Lengths) -> np.ndarray:
        """Return what the policy of its entry says of each sample; entries are kept apart by
        `ShardSources.separate`.
        """
        return self._ask_policies(lengths, "buckets")

    def _ask_policies(self, lengths: Lengths, name: str) -> np.ndarray:
        """Call the method `name` of each policy with the samples of its entry -> (samples,) int64."""
        assert lengths.entries is not None
        values = np.zeros(len(lengths.frames), np.int64)
        for number in np.unique(lengths.entries).tolist():
            in_entry = lengths.entries == number
            method = getattr(self.policies[number], name)
            values[in_entry] = method(lengths.select(in_entry))

        return values


def entry_policy_of(
    confs: Sequence[BatchConf], views: int = 1, filters: Sequence[FilterConf] = ()
) -> EntryPolicy:
    """Return the policy of a mixture.

    Args:
        confs: `batch_conf` of each entry.
        views: views of each utterance with audio in a batch.
        filters: `filter_conf` of each entry, which may measure audio in tokens.

    Raises:
        ConfigError: an entry has a `batch_target`.
    """
    if any(conf.batch_target is not None for conf in confs):
        raise ConfigError(
            "batch_target: not where sources have a batch_conf of their own; lower the bounds "
            "instead"
        )

    filters = filters or [FilterConf()] * len(confs)
    policies = []
    for conf, filter_conf in zip(confs, filters, strict=True):
        policy = policy_of(conf, views, audio_tokens_of(conf, filter_conf))
        policies.append(_scale_policy(policy))

    return EntryPolicy(tuple(policies))


def _scale_policy(policy: Policy) -> Policy:
    """Scale the units of a policy to the bound WHOLE."""
    if isinstance(policy, TextPolicy):
        # Its units of text are shares of the bound of its audio policy.
        return replace(policy, audio=_scale_policy(policy.audio))
    return policy if policy.bound == WHOLE else ScaledPolicy(policy)
