"""The statistics of a model: what a forward pass changes, such as the means of batch norms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import nn

from wenet_uio.models.weights import is_table


class Statistics:
    """Keeps the statistics as they were before a step, which may be repeated or skipped.

    They are all buffers of the model but tables of positions, so that a model may have norms of its
    own.
    """

    def __init__(self, model: nn.Module) -> None:
        """Take the statistics of `model`, which must be on its device."""
        by_type: defaultdict[torch.dtype, list[torch.Tensor]] = defaultdict(list)
        for name, value in model.named_buffers():
            if not is_table(name):
                by_type[value.dtype].append(value)

        self._groups = [_Group(values) for values in by_type.values()]

    def keep(self) -> None:
        """Keep the statistics as they are now."""
        for group in self._groups:
            group.keep()

    def restore(self) -> None:
        """Set the statistics to those that were kept last."""
        for group in self._groups:
            group.restore()

    def restore_if(self, condition: torch.Tensor) -> None:
        """Restore the statistics if `condition` (), which is on the device, is true.

        The host does not wait.
        """
        for group in self._groups:
            group.restore_if(condition)

    def spoilt(self) -> list[torch.Tensor]:
        """Return conditions (): values became infinite or NaN since they were kept."""
        return [group.spoilt() for group in self._groups if group.is_floating_point]


class _Group:
    """Statistics of one type.

    One operation copies all of them, which is faster than an operation for each.
    """

    def __init__(self, values: Sequence[torch.Tensor]) -> None:
        self._values = list(values)
        # All values behind each other (N,): those that were kept, and room for those of now.
        self._kept = torch.cat([value.flatten() for value in values])
        self._now = torch.empty_like(self._kept)
        self._views_of_kept = self._split_views(self._kept)
        self._views_of_now = self._split_views(self._now)
        self.is_floating_point = self._kept.is_floating_point()

    def keep(self) -> None:
        """Keep the values as they are now."""
        _copy_values(self._values, self._views_of_kept)

    def restore(self) -> None:
        """Set the values to those that were kept last."""
        _copy_values(self._views_of_kept, self._values)

    def restore_if(self, condition: torch.Tensor) -> None:
        """Restore the values if `condition` () is true, without a wait of the host."""
        _copy_values(self._values, self._views_of_now)
        torch.where(condition, self._kept, self._now, out=self._now)
        _copy_values(self._views_of_now, self._values)

    def spoilt(self) -> torch.Tensor:
        """Return bool (): a value became infinite or NaN since it was kept."""
        _copy_values(self._values, self._views_of_now)
        return (self._kept.isfinite() & ~self._now.isfinite()).any()

    def _split_views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return the parts of `flat` (N,) in the shapes of the values."""
        parts = flat.split([value.numel() for value in self._values])
        return [part.view(value.shape) for part, value in zip(parts, self._values, strict=True)]


def _copy_values(source: list[torch.Tensor], to: list[torch.Tensor]) -> None:
    """Copy each tensor of `source` into that of `to`, in one operation."""
    torch._foreach_copy_(to, source)  # pyright: ignore[reportPrivateImportUsage] # as torch.optim does
