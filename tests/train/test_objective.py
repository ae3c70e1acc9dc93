"""Losses of a micro-batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from tests.support.train.tiny import tiny_batch
from tests.train.test_inheritance import all_configs
from wenet_uio.models.build import build_trainable
from wenet_uio.train.freezing import freeze
from wenet_uio.train.micro_batches import emptied
from wenet_uio.train.objective import Objective


def test_the_loss_of_a_rank_without_utterances_is_0_and_depends_on_every_trained_weight(
    tmp_path: Path,
) -> None:
    """Ranks exchange the gradients of all weights, also those that only training uses."""
    for name, config in all_configs(tmp_path).items():
        model = build_trainable(config).train()
        freeze(model, config)
        batch = tiny_batch([60], seed=1)
        batch = replace(batch, feats=torch.randn(1, 60, config.feature_dim))

        loss = Objective(model, torch.device("cpu"), "fp32")(emptied(batch))["loss"]
        loss.backward()

        trained = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        assert loss == 0, name
        assert all(weight.grad is not None for weight in trained.values()), name
        assert model.training
