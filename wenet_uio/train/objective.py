"""The model as an engine runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from wenet_uio.dataset.types import Batch
from wenet_uio.train.freezing import train_mode


class Objective(nn.Module):
    """One batch in, its mean losses out."""

    def __init__(self, model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.model = model
        self.device = device
        self.dtype = dtype

    def forward(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """The loss of a batch that is empty or without audio has a part of 0 that depends on every weight, so that all
        ranks exchange all gradients."""
        if not len(batch):
            return {"loss": self._nothing(batch)}
        losses = self._losses(batch)
        return {**losses, "loss": losses["loss"] + self._nothing(batch)} if batch.text_only else losses

    def _nothing(self, batch: Batch) -> torch.Tensor:
        """0, from running the whole model on silence."""
        training = self.model.training
        self.model.eval()  # silence is not to count in batch norms
        losses = self._losses(_silence(batch))
        if training:
            train_mode(self.model)
        return losses["loss"] * 0.0

    def _losses(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            return self.model(batch.feats, batch.feats_lengths, batch.target, batch.target_lengths)


def _silence(batch: Batch) -> Batch:
    """A second of it and one token, of the kind of `batch`."""
    lengths = batch.target.new_full((1,), 100)
    one = torch.ones_like(lengths)
    feats = batch.feats.new_zeros(1, 100, batch.feats.size(2))
    return replace(batch, feats=feats, feats_lengths=lengths, target=one[:, None], target_lengths=one)
