"""Padding that lets few shapes of batches occur, for a CPU that computes in 16 bits.

oneDNN generates the code of a product for its shape, which takes milliseconds, and keeps it for
later batches of that shape. Each batch of a dynamic plan has a shape of its own. Rounded up, many
batches share one.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

import torch
from torch.nn.functional import pad

from wenet_uio.config import Config
from wenet_uio.models.trainable_model import TrainableModel

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
    rounds = device.type == "cpu" and config.dtype != "fp32" and config.mask_padding
    return rounds and not model.encoder.trains_on_padding


def rounded_frames(frames: int) -> int:
    """Round up to one of 16 lengths between two powers of two, by less than a sixteenth."""
    step = 1 << max(0, frames.bit_length() - 5)
    return -(-frames // step) * step


def with_rounded_frames(feats: torch.Tensor) -> torch.Tensor:
    """Features (B, T, F) or ids (B, T) -> the same with zeros up to the rounded T."""
    added = rounded_frames(feats.size(1)) - feats.size(1)
    return pad(feats, (*(0, 0) * (feats.dim() - 2), 0, added)) if added else feats


def with_rounded_labels(target: torch.Tensor, ignore_id: int) -> torch.Tensor:
    """Labels (B, U) -> the same with `ignore_id` up to a multiple of LABELS."""
    added = -target.size(1) % LABELS
    return pad(target, (0, added), value=ignore_id) if added else target
