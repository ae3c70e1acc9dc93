from __future__ import annotations

import pytest
import torch

from tests.train.support.tiny import TinyModel, tiny_config
from wenet_uio.train.optimizer import build_optimizer, build_schedule


def rates(scheduler: str, **conf: float) -> list[float]:
    schedule = build_schedule(tiny_config(scheduler=scheduler, scheduler_conf=conf, optim_conf={"lr": 0.1}))
    return [schedule(step, 0) for step in range(1, 13)]


def test_warmuplr_rises_to_the_full_rate_and_falls_with_the_square_root() -> None:
    multiples = rates("warmuplr", warmup_steps=4)
    assert multiples[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert multiples[8] == pytest.approx((4 / 9) ** 0.5)


def test_warmuplr_without_warm_up_only_falls() -> None:
    assert rates("warmuplr", warmup_steps=0)[:4] == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])


def test_noam_hold_annealing_rises_holds_falls_and_ends_at_min_lr() -> None:
    multiples = rates("NoamHoldAnnealing", max_steps=9, warmup_steps=2, hold_steps=3, decay_rate=1.0, min_lr=0.03)
    rise, hold = [1 / 3, 2 / 3, 1.0], [1.0, 1.0]
    fall = [2 / 2, 2 / 3, 2 / 4, 2 / 5, 2 / 6]  # after 5 to 9 steps: warm-up over steps without the hold
    assert multiples == pytest.approx([*rise, *hold, *fall, 0.3, 0.3])


def test_lengths_of_noam_hold_annealing_can_be_shares_of_max_steps() -> None:
    by_steps = rates("NoamHoldAnnealing", max_steps=10, warmup_steps=2, hold_steps=3)
    assert rates("NoamHoldAnnealing", max_steps=10, warmup_ratio=0.2, hold_ratio=0.3) == by_steps


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_optimizer_has_the_values_of_the_yaml_and_leaves_frozen_weights_out(
    name: str, kind: type[torch.optim.Optimizer]
) -> None:
    model = TinyModel()
    model.hidden.requires_grad_(False)
    optimizer = build_optimizer(model, tiny_config(optim=name, optim_conf={"lr": 0.5, "weight_decay": 0.25}))
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.5, 0.25, (0.9, 0.999))
    assert len(group["params"]) == 2
