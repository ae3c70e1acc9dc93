"""The layers of a model, and the layout of its weights in memory."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of encoder and decoders: all members of ModuleLists."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            yield from module


def contiguous(model: nn.Module) -> None:
    """Make all weights contiguous, for engines that share them by rows.

    Some kernels are stored channels last.
    """
    for weight in model.parameters():
        weight.data = weight.data.contiguous()
