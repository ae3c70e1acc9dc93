from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.train.tiny import TinyModel, tiny_config
from wenet_uio.addons.optim.scaled_adam import ScaledAdam
from wenet_uio.config import ConfigError
from wenet_uio.train.optimizer import (
    build_optimizer,
    load_optimizer_state,
    optimizer_state,
)
from wenet_uio.train.schedules import build_schedule

EDEN = {
    "scheduler": "eden",
    "scheduler_conf": {"lr_batches": 4, "lr_epochs": 2, "warmup_batches": 3},
}
SCALED = {"optim": "scaled_adam", "optim_conf": {"lr": 0.05, "clipping_update_period": 7}, **EDEN}


@pytest.fixture
def golden(golden2: Path) -> dict[str, Any]:
    return torch.load(golden2 / "scaled_adam/golden.pt", weights_only=True)


def network(golden: dict[str, Any]) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    model.load_state_dict(golden["init"])
    return model


def conf(golden: dict[str, Any]) -> Any:
    return tiny_config(
        optim="scaled_adam",
        optim_conf={key: golden[key] for key in ("lr", "clipping_scale")},
        scheduler="eden",
        scheduler_conf={key: golden[key] for key in ("lr_batches", "lr_epochs", "warmup_batches")},
    )


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, golden: dict[str, Any], steps: range
) -> None:
    for step in steps:
        # Rates are noted after each step. The first step of the reference has the rate before any
        # schedule.
        optimizer.param_groups[0]["lr"] = golden["lrs"][step - 1] if step else golden["lr"]
        optimizer.zero_grad()
        (model(golden["xs"][step]) - golden["ys"][step]).square().sum().backward()
        optimizer.step()
        if step % 10 == 9:
            expected = golden["weights_every_10_steps"][step // 10]
            for name, weight in model.named_parameters():
                torch.testing.assert_close(
                    weight.detach(), expected[name], rtol=1e-6, atol=3e-7, msg=f"{step} {name}"
                )


def test_eden_and_scaled_adam_follow_the_reference(golden: dict[str, Any]) -> None:
    schedule = build_schedule(conf(golden))
    rates = [golden["lr"] * schedule(step + 1, (step + 1) // 40) for step in range(120)]
    assert rates == pytest.approx(golden["lrs"], rel=1e-6)
    model = network(golden)
    train(model, build_optimizer(model, conf(golden)), golden, range(120))


def test_a_state_that_is_saved_and_loaded_continues_bit_by_bit(golden: dict[str, Any]) -> None:
    straight, before, after = (network(golden) for _ in range(3))
    train(straight, build_optimizer(straight, conf(golden)), golden, range(60))
    first = build_optimizer(before, conf(golden))
    train(before, first, golden, range(45))
    after.load_state_dict(before.state_dict())
    second = build_optimizer(after, conf(golden))
    load_optimizer_state(after, second, optimizer_state(before, first))
    train(after, second, golden, range(45, 60))
    assert all(
        torch.equal(*pair) for pair in zip(straight.parameters(), after.parameters(), strict=True)
    )


def test_a_weight_without_gradient_stays() -> None:
    used, unused = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = ScaledAdam(
        [used, unused],
        **tiny_config(optim="scaled_adam").optim_conf.model_dump(exclude={"modules"}),
    )
    for _ in range(10):
        used.sum().backward()
        optimizer.step()
    assert torch.equal(unused, torch.ones(3))
    assert not torch.equal(used, torch.ones(3))


def test_a_gradient_above_twice_the_median_is_clipped() -> None:
    weight = nn.Parameter(torch.full((4,), 2.0))
    optimizer = ScaledAdam(
        [weight], **tiny_config(optim="scaled_adam").optim_conf.model_dump(exclude={"modules"})
    )
    for step in range(45):
        weight.grad = torch.ones(4) * (100.0 if step == 44 else 1.0)
        optimizer.step()
    threshold = optimizer.state[weight]["model_norm_threshold"]
    # Twice the allowance of the first estimates
    assert 2.0 < threshold / (2 * weight.detach().norm()) < 4.5
    before = optimizer.state[weight]["exp_avg_sq"].clone()
    weight.grad = torch.full((4,), 1e6)
    optimizer.step()
    assert optimizer.state[weight]["exp_avg_sq"].max() < before.max() + 1.0


def test_the_scale_of_a_tensor_changes_by_at_most_a_tenth_in_a_period() -> None:
    weight = nn.Parameter(torch.full((4,), 0.1))
    keys = tiny_config(optim="scaled_adam").optim_conf.model_dump(exclude={"modules"})
    keys |= {"lr": 1e-4, "scalar_lr_scale": 1e5, "size_update_period": 2}
    optimizer = ScaledAdam([weight], **keys)
    for _ in range(20):
        before = weight.detach().clone()
        for _ in range(2):
            weight.grad = -weight.detach()
            optimizer.step()
        growth = (weight.detach() / before).max().item()
        assert growth < 1.11
    assert growth > 1.05


def test_modules_have_their_own_rates_and_frozen_weights_stay() -> None:
    model = TinyModel()
    model.hidden.weight.requires_grad_(False)
    keys = {"optim_conf": {"lr": [0.5, 0.1], "modules": ["output"]}, "optim": "scaled_adam", **EDEN}
    optimizer = build_optimizer(model, tiny_config(**keys))
    assert [(group["base_lr"], len(group["params"])) for group in optimizer.param_groups] == [
        (0.5, 2),
        (0.1, 1),
    ]
    frozen = model.hidden.weight.clone()
    model.output.weight.sum().backward()
    optimizer.step()
    assert torch.equal(model.hidden.weight, frozen)


def test_engines_that_share_weights_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="scaled_adam needs the whole of each weight.*use torch_ddp"
    ):
        tiny_config(optim="scaled_adam", train_engine="torch_fsdp")
