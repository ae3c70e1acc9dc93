"""The model as engines run it: batches in, mean losses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from wenet_uio.config.regularisation import RegularisationKeys
from wenet_uio.dataset.types import Batch
from wenet_uio.models.arithmetic import autocast
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.few_shapes import with_rounded_frames, with_rounded_labels
from wenet_uio.train.freezing import train_mode


class Objective(nn.Module):
    """Computes the mean losses of a batch in the arithmetic `dtype`, a name of AUTOCAST.

    `few_shapes`: pad further, see few_shapes.py. The losses stay the same up to rounding.
    """

    def __init__(
        self, model: TrainableModel, device: torch.device, dtype: str, *, few_shapes: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.device = device
        self.dtype = dtype
        self.few_shapes = few_shapes

    def forward(self, batch: Batch, cr_weight: float | None = None) -> Mapping[str, torch.Tensor]:
        """Return the mean losses by name; only `loss` for an empty batch.

        `cr_weight` is the weight of the divergence between two views, if the batch has them; None:
        the weight after the warm-up.

        A batch without utterances or without audio does not use all weights, but all ranks must
        exchange all gradients. Such a batch gets an additional loss of 0 that depends on every
        weight.
        """
        if not len(batch):
            return {"loss": self._zero_loss(batch)}

        losses = self._losses(batch, cr_weight)
        if batch.text_only:
            return {**losses, "loss": losses["loss"] + self._zero_loss(batch)}
        return losses

    def _zero_loss(self, batch: Batch) -> torch.Tensor:
        """Return 0 times the loss of one second of silence."""
        training = self.model.training
        self.model.eval()  # batch norms must not count the silence
        losses = self._losses(_silence(batch), None)
        if training:
            train_mode(self.model)

        return losses["loss"] * 0.0

    def _losses(self, batch: Batch, cr_weight: float | None) -> Mapping[str, torch.Tensor]:
        """Return the losses of a batch; `cr_weight` as in `TrainableModel.forward`."""
        with autocast(self.device, self.dtype):
            prompts = self.model.prompts(batch.texts, batch.extra, batch.keys)
            tensors = self._tensors(batch)
            if batch.other_feats is not None:
                # One pass over both views: the second has features of its own and the same labels.
                feats, *shared_tensors = tensors
                other = self._padded_feats(batch.other_feats)
                tensors = (
                    torch.cat((feats, other)),
                    *(torch.cat((tensor, tensor)) for tensor in shared_tensors),
                )
                prompts = None if prompts is None else torch.cat((prompts, prompts))
                if cr_weight is None:
                    cr_weight = self.model.weights.views
                return self.model(*tensors, prompts, cr_weight=cr_weight)

            return self.model(*tensors) if prompts is None else self.model(*tensors, prompts)

    def _tensors(
        self, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the first arguments of TrainableModel.forward."""
        target = batch.target
        # A decoder with a table of positions may have none for further labels.
        if self.few_shapes and getattr(self.model.decoder, "max_tokens", None) is None:
            target = with_rounded_labels(target, self.model.ignore_id)

        feats = self._padded_feats(batch.feats)
        return feats, batch.feats_lengths, target, batch.target_lengths

    def _padded_feats(self, feats: torch.Tensor) -> torch.Tensor:
        return with_rounded_frames(feats) if self.few_shapes else feats


def _silence(batch: Batch) -> Batch:
    """Return a batch like `batch` with one utterance: a second of silence and one token."""
    lengths = batch.feats_lengths.new_full((1,), 100)
    feats = batch.feats.new_zeros(1, 100, batch.feats.size(2))
    return replace(
        batch,
        feats=feats,
        other_feats=None,
        feats_lengths=lengths,
        target=batch.target.new_ones(1, 1),
        target_lengths=torch.ones_like(lengths),
        texts=("",),
        extra=({},),
    )


def cr_weight(keys: RegularisationKeys, number: int) -> float:
    """Return the weight of the divergence between two views in optimizer step `number` (from 1)."""
    return keys.cr_loss_scale * min(1.0, number / max(1, keys.cr_warmup_steps))
