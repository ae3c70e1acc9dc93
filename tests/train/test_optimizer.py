from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.train.tiny import TinyModel, tiny_config
from tests.train.test_trainer import (
    TRAIN,
    DisturbedLoader,
    handler_of_sigterm,
    make_trainer,
    same_weights,
)
from wenet_uio.train import trainer as training
from wenet_uio.train.optimizer import build_optimizer, load_optimizer_state
from wenet_uio.train.schedules import build_schedule


def rates(scheduler: str, **conf: float) -> list[float]:
    schedule = build_schedule(
        tiny_config(scheduler=scheduler, scheduler_conf=conf, optim_conf={"lr": 0.1})
    )
    return [schedule(step, 0) for step in range(1, 13)]


def test_warmuplr_rises_to_the_full_rate_and_falls_with_the_square_root() -> None:
    multiples = rates("warmuplr", warmup_steps=4)
    assert multiples[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert multiples[8] == pytest.approx((4 / 9) ** 0.5)


def test_warmuplr_without_warm_up_only_falls() -> None:
    assert rates("warmuplr", warmup_steps=0)[:4] == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])


def test_noam_hold_annealing_rises_holds_falls_and_ends_at_min_lr() -> None:
    multiples = rates(
        "NoamHoldAnnealing", max_steps=9, warmup_steps=2, hold_steps=3, decay_rate=1.0, min_lr=0.03
    )
    rise, hold = [1 / 3, 2 / 3, 1.0], [1.0, 1.0]
    # After 5 to 9 steps: warm-up over steps without the hold
    fall = [
        2 / 2,
        2 / 3,
        2 / 4,
        2 / 5,
        2 / 6,
    ]
    assert multiples == pytest.approx([*rise, *hold, *fall, 0.3, 0.3])


def test_lengths_of_noam_hold_annealing_can_be_shares_of_max_steps() -> None:
    by_steps = rates("NoamHoldAnnealing", max_steps=10, warmup_steps=2, hold_steps=3)
    assert rates("NoamHoldAnnealing", max_steps=10, warmup_ratio=0.2, hold_ratio=0.3) == by_steps


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_optimizer_has_the_values_of_the_yaml_and_leaves_frozen_weights_out(
    name: str, kind: type[torch.optim.Optimizer]
) -> None:
    model = TinyModel()
    model.hidden.requires_grad_(False)
    optimizer = build_optimizer(
        model, tiny_config(optim=name, optim_conf={"lr": 0.5, "weight_decay": 0.25})
    )
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.5, 0.25, (0.9, 0.999))
    assert len(group["params"]) == 2


def test_warmup_cosine_rises_and_falls_along_half_a_cosine_to_min_lr() -> None:
    found = rates("WarmupCosine", warmup_steps=2, max_steps=10, min_lr=0.02)
    assert found[:2] == pytest.approx([0.5, 1.0])
    assert found[5] == pytest.approx(0.6)  # half of the way from 1 to 0.2
    assert found[9:] == pytest.approx([0.2, 0.2, 0.2])
    assert found[1:10] == sorted(found[1:10], reverse=True)


def test_warmup_cosine_without_warm_up_only_falls() -> None:
    found = rates("WarmupCosine", max_steps=12)
    assert found == sorted(found, reverse=True)
    assert found[11] == pytest.approx(0.0)


def test_tri_stage_rises_holds_and_falls_exponentially() -> None:
    found = rates(
        "tri_stage",
        warmup_steps=2,
        hold_steps=3,
        decay_steps=4,
        init_lr_scale=0.5,
        final_lr_scale=0.0625,
    )
    assert found == pytest.approx([0.5, 0.75, 1, 1, 1, 1, 0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0625])


def test_modules_may_have_weight_decays_of_their_own() -> None:
    conf = {
        "modules": ["output", "hidden.bias"],
        "lr": [0.1, 0.1, 0.1],
        "weight_decay": [0.5, 0.0, 0.1],
    }
    model = TinyModel()
    optimizer = build_optimizer(model, tiny_config(optim="adamw", optim_conf=conf))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0, 0.1]
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()  # without a gradient only the decay changes a weight
    shrunk = {"output.weight": 0.95, "output.bias": 0.95, "hidden.bias": 1.0, "hidden.weight": 0.99}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, before[name] * shrunk[name])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"scheduler": "WarmupCosine", "scheduler_conf": {"warmup_steps": 5, "max_steps": 5}},
            "is not below max_steps 5",
        ),
        ({"scheduler": "WarmupCosine", "scheduler_conf": {}}, "max_steps: required key is missing"),
        (
            {"scheduler": "tri_stage", "scheduler_conf": {"warmup_steps": 5}},
            "hold_steps: required key is missing",
        ),
        (
            {"optim": "adamw", "optim_conf": {"weight_decay": [0.1, 0.2]}},
            "2 weight decays for 0 modules",
        ),
        ({"optim": "adam", "optim_conf": {"weight_decay": [0.1]}}, "optim_conf.weight_decay"),
    ],
)
def test_impossible_schedules_and_decays_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_config(**keys)


@pytest.mark.parametrize(
    ("optim", "memory"), [("scaled_adam", "model_norm_threshold"), ("muon", "momentum_buffer")]
)
def test_a_run_killed_by_the_kernel_resumes_exactly(
    optim: str, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "show_complete", lambda *_, **__: None)
    scaled = {"clipping_update_period": 7} if optim == "scaled_adam" else {}
    keys = {
        "optim": optim,
        "optim_conf": {"lr": 0.05, **scaled},
        "scheduler": "eden",
        "scheduler_conf": {"lr_batches": 4, "lr_epochs": 2, "warmup_batches": 3},
    }
    with handler_of_sigterm():
        assert make_trainer(tmp_path / "straight", **keys).run()
        for at in (8, 2):
            child = os.fork()
            if not child:
                loader = DisturbedLoader(TRAIN, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
                try:
                    make_trainer(tmp_path / "killed", loader, save_interval=3, **keys).run()
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert make_trainer(tmp_path / "killed", save_interval=3, **keys).run()

    assert same_weights(tmp_path / "killed/epoch_2.pt", tmp_path / "straight/epoch_2.pt")
    first, second = (
        torch.load(tmp_path / name / "state_15.pt")["optimizer"] for name in ("killed", "straight")
    )
    assert any(memory in state for state in first.values())
    for name, state in first.items():
        assert state.keys() == second[name].keys()
        assert all(torch.equal(value, second[name][key]) for key, value in state.items()), name


def resumed(path: Path, began: dict[str, Any], goes_on: dict[str, Any]) -> None:
    """Train two steps with some keys, and resume with others."""
    usual = {"optim_conf": {"lr": 0.01}, "report": False}
    with handler_of_sigterm():
        loader = DisturbedLoader(TRAIN, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert not make_trainer(path, loader, **{**usual, **began}).run()
        make_trainer(path, **{**usual, **goes_on}).run()


@pytest.mark.parametrize(
    ("began", "goes_on", "problem"),
    [
        ({"optim": "adam"}, {"optim": "muon"}, r"no momentum_buffer of hidden\.weight, as Muon"),
        ({"optim": "muon"}, {"optim": "adam"}, r"no exp_avg_sq of hidden\.weight, as Adam"),
        ({"optim": "muon"}, {"optim": "scaled_adam"}, r"no step of hidden\.weight, as ScaledAdam"),
        (
            {"optim": "scaled_adam"},
            {"optim": "scaled_adam", "optim_conf": {"size_update_period": 8}},
            r"scale_grads \(4,\) of hidden\.weight, not \(8,\)",
        ),
        (
            {"optim": "scaled_adam", "optim_conf": {"clipping_update_period": 7}},
            {"optim": "scaled_adam"},
            r"model_norms \(7,\) of hidden\.weight, not \(100,\)",
        ),
    ],
)
def test_the_state_of_another_optimizer_is_refused_in_one_line(
    began: dict[str, Any], goes_on: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"the state of the run has {problem}.*resume with"):
        resumed(tmp_path, began, goes_on)


def test_adam_goes_on_as_adamw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed(tmp_path, {"optim": "adam"}, {"optim": "adamw"})
    assert (tmp_path / "final.pt").exists()


@pytest.mark.parametrize("key", ["step", "exp_avg", "exp_avg_sq"])
def test_optimizer_state_of_another_shape_is_refused_before_it_can_end_the_process(
    key: str,
) -> None:
    model = TinyModel()
    saved = {
        name: {
            "step": torch.ones(()),
            **{k: torch.zeros_like(w) for k in ("exp_avg", "exp_avg_sq")},
        }
        for name, w in model.named_parameters()
    }
    saved["output.weight"][key] = torch.zeros(3)
    with pytest.raises(ValueError, match=rf"has {key} \(3,\) of output\.weight, not"):
        load_optimizer_state(model, build_optimizer(model, tiny_config()), saved)
