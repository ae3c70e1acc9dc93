"""Trainer, optimizer and schedule of NeMo as keys of Config."""

from __future__ import annotations

import math
import re

import pytest

from wenet_uio.config import ConfigError, parse_config
from wenet_uio.train.schedules import build_schedule

DATA = {"manifest_filepath": "a.json"}


def with_trainer(**trainer):
    return parse_config({"model": {"train_ds": DATA}, "trainer": trainer}, "t.yaml")


@pytest.mark.parametrize(
    ("trainer", "keys"),
    [
        ({"max_epochs": 30, "max_steps": -1}, {"max_epoch": 30, "max_steps": None}),
        ({"max_epochs": -1, "max_steps": 300000}, {"max_epoch": 10**9, "max_steps": 300000}),
        ({"max_steps": 300000}, {"max_epoch": 10**9, "max_steps": 300000}),
        ({"max_epochs": 2, "max_steps": 9}, {"max_epoch": 2, "max_steps": 9}),
        ({"max_time": "00:04:30:00"}, {"max_hours": 4.5, "max_epoch": 10**9}),
        ({"max_time": "1:00:00:36"}, {"max_hours": 24.01}),
        ({"max_time": {"days": 1, "hours": 12}}, {"max_hours": 36.0}),
        ({"max_time": {"minutes": 90}, "max_epochs": 3}, {"max_hours": 1.5, "max_epoch": 3}),
        ({"max_time": "00:01:00:00", "max_epochs": -1}, {"max_hours": 1.0, "max_epoch": 10**9}),
        ({"max_time": "00:01:00:00", "max_steps": 9}, {"max_hours": 1.0, "max_steps": 9}),
        ({"max_time": None, "max_epochs": 3}, {"max_hours": None, "max_epoch": 3}),
        ({"accumulate_grad_batches": 4}, {"accum_grad": 4}),
        ({"gradient_clip_val": 0.5}, {"grad_clip": 0.5}),
        ({"gradient_clip_val": 0.0}, {"grad_clip": 1e9}),
        ({"gradient_clip_val": None}, {"grad_clip": 1e9}),
        ({"precision": 32}, {"dtype": "fp32"}),
        ({"precision": 16}, {"dtype": "fp16"}),
        ({"precision": "bf16-mixed"}, {"dtype": "bf16"}),
        ({"strategy": "ddp"}, {"train_engine": "torch_ddp"}),
        ({"strategy": "ddp_find_unused_parameters_false"}, {"train_engine": "torch_ddp"}),
        ({"strategy": "auto"}, {"train_engine": "torch_ddp"}),
        ({"strategy": {"_target_": "l.s.DDPStrategy"}}, {"train_engine": "torch_ddp"}),
        ({"strategy": "deepspeed_stage_2"}, {"train_engine": "deepspeed"}),
        ({"strategy": {"_target_": "x.FSDPStrategy"}}, {"train_engine": "torch_fsdp"}),
        ({"log_every_n_steps": 25}, {"log_interval": 25}),
        ({"limit_train_batches": 1000}, {"epoch_steps": 1000}),
        ({"limit_train_batches": 1.0, "val_check_interval": 1.0}, {"epoch_steps": None}),
        ({"limit_train_batches": 1000, "val_check_interval": 1.0}, {"epoch_steps": 1000}),
        (
            {"limit_train_batches": 1000, "val_check_interval": 0.25, "max_epochs": 3},
            {"epoch_steps": 250, "max_epoch": 12},
        ),
        (
            {"val_check_interval": 2500, "max_steps": 500000, "max_epochs": -1},
            {"epoch_steps": 2500, "max_steps": 500000},
        ),
        (
            {"limit_train_batches": 1000, "accumulate_grad_batches": 8},
            {"epoch_steps": 125, "accum_grad": 8},
        ),
    ],
)
def test_keys_of_the_trainer_have_equals(trainer, keys):
    config = with_trainer(**trainer)
    assert {key: getattr(config, key) for key in keys} == keys


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"max_epochs": -1, "max_steps": -1}, "max_epochs: -1 without max_steps never ends"),
        ({"max_epochs": None}, "max_epochs: None without max_steps never ends"),
        ({"limit_train_batches": 0.1}, "0.1 is a share of an epoch, whose length is not known yet"),
        ({"limit_train_batches": 0}, "expected a number of batches above 0, found 0"),
        ({"limit_train_batches": 2.5}, "expected a number of batches above 0, found 2.5"),
        ({"val_check_interval": 100, "max_epochs": 3}, "write max_steps and max_epochs: -1"),
        ({"precision": "bf16-true"}, "'bf16-true' has no equal here, because weights stay fp32"),
        ({"strategy": "tpu"}, "write train_engine: torch_ddp, torch_fsdp or deepspeed"),
        ({"gradient_clip_algorithm": "value"}, "write norm"),
        ({"accumulate_grad_batches": {0: 2}}, "expected a whole number above 0"),
        ({"fast_dev_run": True}, "write max_steps: 1"),
        ({"max_time": "4:00:00"}, "expected a time above 0 as DD:HH:MM:SS"),
        ({"max_time": "00:00:00:00"}, "expected a time above 0 as DD:HH:MM:SS"),
        ({"max_time": {"hour": 4}}, "or {hours: 4}, found {'hour': 4}"),
        ({"max_time": 4}, "found 4"),
        ({"max_epoch": 3}, "trainer.max_epoch: unknown key; did you mean 'max_epochs'?"),
    ],
)
def test_what_the_trainer_has_no_equal_for_is_one_line(trainer, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        with_trainer(**trainer)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("trainer", "note"),
    [
        ({"devices": 2}, "trainer.devices: not read here: the launcher starts the processes"),
        ({"num_nodes": 4}, "--nnodes N"),
        ({"accelerator": "gpu"}, "the device is an option of train.py: --device"),
        ({"sync_batchnorm": True}, "statistics of batch normalisation are those of each rank"),
        ({"limit_val_batches": 10}, "give a shorter list as --cv_data"),
        ({"logger": False}, "trainer.logger: not needed here, because TensorBoard"),
        ({"limit_train_batches": 10, "accumulate_grad_batches": 4}, "an epoch has 12 batches"),
    ],
)
def test_what_the_trainer_does_in_another_way_is_noted(trainer, note, caplog):
    with_trainer(**trainer)
    assert note in caplog.text


def test_a_length_that_stands_in_the_yaml_too_is_refused_if_it_differs():
    values = {"trainer": {"max_epochs": 3}, "max_epoch": 3, "train_ds": DATA}
    assert parse_config(values, "t.yaml").max_epoch == 3
    with pytest.raises(ConfigError, match="is max_epoch: 3 here, and the yaml has max_epoch: 4"):
        parse_config({**values, "max_epoch": 4}, "t.yaml")


def with_optim(optim, **trainer):
    model = {"train_ds": DATA, "optim": optim, "d": 256}
    return parse_config({"model": model, "trainer": trainer}, "t.yaml")


def rates_of(config, steps):
    schedule = build_schedule(config)
    return [config.optim_conf.lr * schedule(step, 0) for step in steps]


@pytest.mark.parametrize("lowest", [1e-6, 1e-3])
def test_noam_annealing_has_the_rates_of_nemo(lowest):
    warmup, width = 1000, 256
    sched = {"name": "NoamAnnealing", "d_model": "${model.d}", "warmup_steps": warmup}
    optim = {"name": "adamw", "lr": 2.0, "sched": {**sched, "min_lr": lowest}}
    config = with_optim(optim, max_steps=50000)
    steps = [2, 10, 500, 999, 2000, 20000, 49000]
    # NeMo counts steps from 0
    normal = width**-0.5
    expected = [2.0 * normal * min((step - 1) ** -0.5, (step - 1) * warmup**-1.5) for step in steps]
    expected = [
        max(rate, lowest) if step > warmup else rate
        for step, rate in zip(steps, expected, strict=True)
    ]
    for rate, of_nemo, step in zip(rates_of(config, steps), expected, steps, strict=True):
        assert rate == pytest.approx(of_nemo, rel=2 / min(step, warmup))


def test_cosine_annealing_ends_at_the_last_step():
    sched = {"name": "CosineAnnealing", "warmup_ratio": 0.1, "min_lr": 1e-5}
    config = with_optim({"name": "adam", "lr": "1e-3", "sched": sched}, max_steps=1000)
    middle = 1e-5 + (1e-3 - 1e-5) * 0.5 * (1 + math.cos(math.pi / 2))
    assert rates_of(config, [50, 100, 550, 1000]) == pytest.approx([5e-4, 1e-3, middle, 1e-5])
    config = with_optim(
        {"lr": 0.1, "sched": {"name": "CosineAnnealing"}}, limit_train_batches=50, max_epochs=4
    )
    assert config.scheduler_conf.max_steps == 200


def test_other_schedules_and_keys_of_an_optimizer():
    sched = {"name": "NoamHoldAnnealing", "warmup_steps": 10, "hold_steps": 5, "decay_rate": 0.5}
    optim = {"lr": 0.01, "betas": [0.9, 0.98], "weight_decay": 1e-3, "eps": 1e-7, "sched": sched}
    config = with_optim(optim, max_steps=100)
    assert (config.optim, config.optim_conf.betas) == ("adamw", (0.9, 0.98))
    assert (config.optim_conf.weight_decay, config.optim_conf.eps) == (1e-3, 1e-7)
    assert (config.scheduler, config.scheduler_conf.hold) == ("NoamHoldAnnealing", 5)
    assert set(rates_of(with_optim({"lr": 0.01}), [1, 10, 10**6])) == {0.01}


@pytest.mark.parametrize(
    ("optim", "message"),
    [
        (
            {"name": "novograd", "lr": 0.1},
            "optim.name: 'novograd' does not exist here; write adamw",
        ),
        ({"lr": "fast"}, "optim.lr: expected a learning rate above 0, found 'fast'"),
        ({"lr": 0.1, "momentum": 0.9}, "optim.momentum: unknown key; known: name, lr"),
        ({"lr": 0.1, "sched": {"name": "CosineAnnealing"}}, "write trainer.max_steps"),
        ({"lr": 0.1, "sched": {"name": "SquareAnnealing"}}, "'SquareAnnealing' has no equal here"),
        (
            {"lr": 0.1, "sched": {"name": "NoamAnnealing", "warmup_steps": 9}},
            "sched.d_model: is missing; write the width of the encoder",
        ),
        (
            {"lr": 0.1, "sched": {"name": "NoamAnnealing", "d_model": "${model.encoder.d_model}"}},
            "the file has no key model.encoder.d_model",
        ),
        (
            {"lr": 0.1, "sched": {"name": "NoamAnnealing", "warmup": 9}},
            "sched.warmup: unknown key of NoamAnnealing",
        ),
    ],
)
def test_what_an_optimizer_has_no_equal_for_is_one_line(optim, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        with_optim(optim)
    assert "\n" not in str(raised.value)
