"""The running average of the weights, updated in training and saved with each epoch.

The sums are float64 on the CPU of rank 0. So the average is the same whatever the engine, and costs
no memory of an accelerator. The saved files have the types of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from wenet_uio.config.train import ModelAvgConf


class RunningAverage:
    """Mean, or exponential average, of the weights after every `interval`-th optimizer step."""

    def __init__(self, conf: ModelAvgConf) -> None:
        self.conf = conf
        self.count = 0
        """Number of averaged weights."""
        self._means: dict[str, torch.Tensor] = {}

    def is_due(self, step: int) -> bool:
        """Tell whether the weights after optimizer step `step` (from 1) count."""
        return step > self.conf.since and step % self.conf.interval == 0

    def add(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Count a state dict. Of integer buffers the newest value is kept."""
        self.count += 1
        # The share of these weights in the new average: a mean, or after the first ones 1 - decay.
        share = 1.0 / self.count
        if self.conf.decay is not None and self.count > 1:
            share = 1.0 - self.conf.decay

        for name, value in weights.items():
            if not value.is_floating_point():
                self._means[name] = value.clone()
            elif self.count == 1:
                self._means[name] = value.to(torch.float64, copy=True)
            else:
                self._means[name].lerp_(value.double(), share)

    def weights(self, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the average, in the types of the state dict `like`."""
        return {name: self._means[name].to(value.dtype) for name, value in like.items()}

    def record(self) -> dict[str, Any]:
        """Return what the yaml of an epoch says: `count`, `decay` and `since`."""
        return {"count": self.count, "decay": self.conf.decay, "since": self.conf.since}

    def state_dict(self) -> dict[str, Any]:
        """Return copies of count and means, and the config."""
        means = {name: value.clone() for name, value in self._means.items()}
        return {"count": self.count, "means": means, "conf": self.conf.model_dump()}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Continue from a result of `state_dict`.

        None starts a new average: the run had none so far.

        Raises:
            ValueError: the state is of an average with another config.
        """
        if state is None:
            return

        conf = self.conf.model_dump()
        if state["conf"] != conf:
            raise ValueError(
                f"model_avg: the average of this run has {_listed_values(state['conf'])}, the config has "
                f"{_listed_values(conf)}; an average cannot go on in another way: give the former values, "
                "or train in another folder"
            )

        self.count, self._means = state["count"], dict(state["means"])


def _listed_values(conf: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in conf.items())
