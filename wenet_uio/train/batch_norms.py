"""The statistics of batch norms, which a forward pass changes."""

from __future__ import annotations

import torch
from torch import nn


class Statistics:
    """Keeps the statistics as they were before a step, for the case that the step is repeated."""

    def __init__(self, model: nn.Module) -> None:
        """Take the statistics of `model`, which must be on its device."""
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
        values = [buffer for norm in norms for buffer in norm.buffers()]
        kinds = dict.fromkeys(value.dtype for value in values)
        # One operation copies all tensors of a type.
        self._values = [[value for value in values if value.dtype == kind] for kind in kinds]
        self._kept = [[value.clone() for value in alike] for alike in self._values]

    def keep(self) -> None:
        """Keep the statistics as they are now."""
        for kept, values in zip(self._kept, self._values, strict=True):
            torch._foreach_copy_(kept, values)

    def restore(self) -> None:
        """Set the statistics to those that were kept last."""
        for kept, values in zip(self._kept, self._values, strict=True):
            torch._foreach_copy_(values, kept)
