"""Frozen parts at the bottom of a model do no work for a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from tests.models.test_batches import KINDS, make_features, padded_batch
from wenet_uio.models import ASRModel
from wenet_uio.train.layers import train_mode

Make = Callable[..., ASRModel]


def stored(model: ASRModel) -> tuple[torch.Tensor, list[torch.Size]]:
    """Encoder frames of a batch in training, and the shapes that autograd keeps of its pass."""
    shapes: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        shapes.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        frames, _ = model.encoder(*padded_batch(make_features(model, [120, 90, 64])))
    return frames, shapes


@pytest.mark.third
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_encoder_keeps_nothing_for_a_backward_pass(
    kind: str, recompute: bool, make_encoder_model: Make
) -> None:
    encoder, conf = KINDS[kind]
    model = make_encoder_model(encoder, conf)
    cast("Any", model.encoder).gradient_checkpointing = recompute
    train_mode(model)
    frames, shapes = stored(model)
    assert frames.requires_grad
    assert shapes

    model.encoder.requires_grad_(False)
    train_mode(model)
    frames, shapes = stored(model)
    assert not frames.requires_grad
    assert shapes == []


@pytest.mark.parametrize("encoder", ["transformer", "conformer", "e_branchformer"])
def test_blocks_below_the_first_trained_one_keep_nothing(
    encoder: str, make_encoder_model: Make
) -> None:
    model = make_encoder_model(encoder, {})
    model.encoder.requires_grad_(False)
    last = cast("Any", model.encoder).encoders[-1]
    last.requires_grad_(True)
    train_mode(model)
    inputs: list[torch.Tensor] = []
    last.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    frames, shapes = stored(model)
    assert frames.requires_grad
    assert not inputs[0].requires_grad
    model.encoder.requires_grad_(True)
    assert len(shapes) < len(stored(model)[1])
