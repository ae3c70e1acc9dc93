"""The model as engines run it: batches in, mean losses out.

A CPU that computes in 16 bits gets batches of few shapes. oneDNN generates the code of a product
for its shape, which takes milliseconds, and keeps it for later batches of that shape. Each batch of a
dynamic plan has a shape of its own. Rounded up, many batches share one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config import Config
from wenet_uio.config.train import RegularisationKeys
from wenet_uio.dataset.types import Batch
from wenet_uio.models.arithmetic import autocast
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.layers import train_mode

SILENT_FRAMES = 100
"""Frames of a second of silence."""
LABELS = 4
"""The length of labels becomes a multiple of this."""
CACHED_KERNELS = 4096
"""Kernels that oneDNN keeps. Its default of 1024 holds those of some twenty shapes."""
CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")


def keep_kernels(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let oneDNN keep CACHED_KERNELS kernels, unless a variable sets another number.

    oneDNN reads the variable when it computes for the first time.
    """
    if not any(name in environment for name in CACHE_VARIABLES):
        environment[CACHE_VARIABLES[0]] = str(CACHED_KERNELS)


def allows_few_shapes(model: TrainableModel, device: torch.device, config: Config) -> bool:
    """Tell whether a CPU computes in 16 bits, and padding changes none of the losses and gradients.

    It changes them with `mask_padding: false`, and in an encoder whose regularisers count it.
    """
    computes_in_16_bits = device.type == "cpu" and config.dtype != "fp32"
    ignores_padding = config.mask_padding and not model.encoder.trains_on_padding
    return computes_in_16_bits and ignores_padding


def rounded_frames(frames: int) -> int:
    """Round up to one of 16 lengths between two powers of two, by less than a sixteenth."""
    # 2**n lies in [frames / 2, frames]; the step is 2**n / 16, at least 1.
    step = 1 << max(0, frames.bit_length() - 5)
    return -(-frames // step) * step


def pad_to_rounded_frames(feats: torch.Tensor) -> torch.Tensor:
    """Features (B, T, F) or ids (B, T) -> the same with zeros up to the rounded T."""
    added = rounded_frames(feats.size(1)) - feats.size(1)
    if not added:
        return feats
    if feats.dim() == 2:
        return pad(feats, (0, added))
    return pad(feats, (0, 0, 0, added))  # none on F, `added` behind T


def pad_to_rounded_labels(target: torch.Tensor, ignore_id: int) -> torch.Tensor:
    """Labels (B, U) -> the same with `ignore_id` up to a multiple of LABELS."""
    added = -target.size(1) % LABELS
    return pad(target, (0, added), value=ignore_id) if added else target


class Objective(nn.Module):
    """Computes the mean losses of a batch in the arithmetic `dtype`, a name of AUTOCAST.

    `few_shapes`: pad further, up to few shapes, see above. The losses stay the same up to rounding.
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

        losses = self._compute_losses(batch, cr_weight)
        if batch.text_only:
            return {**losses, "loss": losses["loss"] + self._zero_loss(batch)}
        return losses

    def _zero_loss(self, batch: Batch) -> torch.Tensor:
        """Return 0 times the loss of one second of silence."""
        training = self.model.training
        self.model.eval()  # batch norms must not count the silence
        losses = self._compute_losses(_silent_batch(batch), None)
        if training:
            train_mode(self.model)

        return losses["loss"] * 0.0

    def _compute_losses(self, batch: Batch, cr_weight: float | None) -> Mapping[str, torch.Tensor]:
        """Return the losses of a batch; `cr_weight` as in `TrainableModel.forward`."""
        with autocast(self.device, self.dtype):
            prompts = self.model.prompts(batch.texts, batch.extra, batch.keys)
            tensors = self._model_inputs(batch)
            if batch.other_feats is None:
                return self.model(*tensors) if prompts is None else self.model(*tensors, prompts)

            # One pass over both views: the second has features of its own and the same labels.
            feats, *labels_and_lengths = tensors
            feats = torch.cat((feats, self._pad_feats(batch.other_feats)))
            twice = [torch.cat((tensor, tensor)) for tensor in labels_and_lengths]
            if prompts is not None:
                prompts = torch.cat((prompts, prompts))
            if cr_weight is None:
                cr_weight = self.model.weights.views

            return self.model(feats, *twice, prompts, cr_weight=cr_weight)

    def _model_inputs(
        self, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the first arguments of TrainableModel.forward."""
        target = batch.target
        # A decoder with a table of positions may have none for further labels.
        if self.few_shapes and getattr(self.model.decoder, "max_tokens", None) is None:
            target = pad_to_rounded_labels(target, self.model.ignore_id)

        feats = self._pad_feats(batch.feats)
        return feats, batch.feats_lengths, target, batch.target_lengths

    def _pad_feats(self, feats: torch.Tensor) -> torch.Tensor:
        return pad_to_rounded_frames(feats) if self.few_shapes else feats


def _silent_batch(batch: Batch) -> Batch:
    """Return a batch like `batch` with one utterance: a second of silence and one token."""
    lengths = batch.feats_lengths.new_full((1,), SILENT_FRAMES)
    feats = batch.feats.new_zeros(1, SILENT_FRAMES, batch.feats.size(2))
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
    share_of_warm_up = min(1.0, number / max(1, keys.cr_warmup_steps))
    return keys.cr_loss_scale * share_of_warm_up
