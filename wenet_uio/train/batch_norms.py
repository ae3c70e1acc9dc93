"""The statistics of batch norms, which a forward pass changes."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn


class Statistics:
    """Keeps the statistics as they were before a step, for the case that the step is repeated."""

    def __init__(self, model: nn.Module) -> None:
        """Take the statistics of `model`, which must be on its device."""
        # One operation copies all values of a type, which is faster than an operation for each.
        by_type: defaultdict[torch.dtype, list[torch.Tensor]] = defaultdict(list)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                for value in module.buffers():
                    by_type[value.dtype].append(value)

        self._values = list(by_type.values())
        self._kept = [[value.clone() for value in values] for values in self._values]

    def keep(self) -> None:
        """Keep the statistics as they are now."""
        for kept, values in zip(self._kept, self._values, strict=True):
            torch._foreach_copy_(kept, values)  # pyright: ignore[reportPrivateImportUsage] # as torch.optim does

    def restore(self) -> None:
        """Set the statistics to those that were kept last."""
        for kept, values in zip(self._kept, self._values, strict=True):
            torch._foreach_copy_(values, kept)  # pyright: ignore[reportPrivateImportUsage]
