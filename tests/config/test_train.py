from __future__ import annotations

from typing import Any

import pytest

from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.config.optimizer import AdamWConf
from wenet_uio.config.schedules import NoamHoldAnnealingConf


def test_the_names_of_optimizer_and_schedule_select_their_keys() -> None:
    values = {
        "optim": "adamw",
        "scheduler": "NoamHoldAnnealing",
        "scheduler_conf": {"max_steps": 10, "warmup_steps": 2},
    }
    config = parse_config(values, "test")
    assert isinstance(config.optim_conf, AdamWConf)
    assert config.optim_conf.weight_decay == 0.01
    assert isinstance(config.scheduler_conf, NoamHoldAnnealingConf)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accum_grda": 2}, "accum_grda: unknown key; did you mean 'accum_grad'"),
        (
            {"optim_conf": {"learning_rate": 1}},
            "optim_conf.learning_rate: unknown key; known: betas, eps, lr",
        ),
        ({"optim": "adma"}, "optim: .*did you mean 'adam'"),
        ({"scheduler": "staircase"}, "scheduler: .*known: warmuplr, NoamHoldAnnealing"),
        ({"scheduler_conf": {"max_steps": 3}}, "scheduler_conf.max_steps: unknown key"),
        ({"scheduler": "NoamHoldAnnealing"}, "scheduler_conf.max_steps: required key is missing"),
        ({"train_engine": "torch_dp"}, "train_engine: .*did you mean 'torch_ddp'"),
        ({"dtype": "int8"}, "dtype: .*'fp32', 'bf16', 'fp16' or 'auto'"),
        ({"grad_clip": 0}, "grad_clip: .*greater than 0"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(values, "test")


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({}, "warmup_steps or warmup_ratio is required"),
        ({"warmup_steps": 1, "warmup_ratio": 0.1}, "warmup_steps or warmup_ratio, not both"),
        (
            {"warmup_steps": 60, "hold_steps": 60},
            "warm-up 60 and hold 60 are longer than max_steps 100",
        ),
    ],
)
def test_invalid_lengths_of_noam_hold_annealing_are_refused(
    conf: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(
            {"scheduler": "NoamHoldAnnealing", "scheduler_conf": {"max_steps": 100, **conf}}, "test"
        )


def test_a_saved_config_is_read_back_unchanged(tmp_path: Any) -> None:
    config = parse_config(
        {"optim": "adamw", "optim_conf": {"betas": [0.9, 0.98]}, "keep_last": None}, "test"
    )
    save_config(config, tmp_path / "train.yaml")
    assert load_config(tmp_path / "train.yaml").model_dump() == config.model_dump()


def test_an_optimizer_of_a_yaml_is_never_the_code_of_another_package(tmp_path, monkeypatch):
    (tmp_path / "toy_optimizer.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="optim: unknown; known: adam, adamw, scaled_adam, muon"):
        parse_config({"optim": "toy_optimizer:TOY"}, "t.yaml")
