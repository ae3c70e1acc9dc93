"""Losses of a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.support.train.tiny import TinyModel, tiny_batch, two_views
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


class PromptedModel(TinyModel):
    """Notes the prompts that a batch is trained with: the number of each text."""

    def prompts(self, texts: Sequence[str], fields: Any, keys: Any = ()) -> torch.Tensor:
        return torch.tensor([[int(text)] for text in texts])

    def forward(
        self, feats: torch.Tensor, *others: torch.Tensor, cr_weight: float | None = None
    ) -> dict[str, torch.Tensor]:
        *others, prompts = others
        self.seen = prompts.flatten().tolist()
        return super().forward(feats, *others)


def test_the_decoder_starts_with_the_prompts_of_its_utterances_in_both_views() -> None:
    model = PromptedModel()
    objective = Objective(model, torch.device("cpu"), "fp32")
    batch = replace(tiny_batch([5, 3], seed=1), texts=("7", "9"))
    objective(batch)
    assert model.seen == [7, 9]
    objective(two_views(batch), cr_weight=0.5)
    assert model.seen == [7, 9, 7, 9]
