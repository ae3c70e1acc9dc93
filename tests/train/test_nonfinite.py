"""A step without a finite gradient changes nothing, and what is not finite is named and never used."""

from __future__ import annotations

import json
import logging
import math
import sys
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from tests.support import preloaded
from tests.support.train import skipping_ranks
from tests.support.train.tiny import CPU, FEATURES, ListLoader, TinyModel, small_config, tiny_batch
from tests.train.test_late_results import late_trainer
from tests.train.test_trainer import (  # the fixtures of this module, too
    _handler_of_sigterm,  # noqa: F401
    _without_report,  # noqa: F401
    make_trainer,
    series,
)
from wenet_uio.dataset.types import Batch
from wenet_uio.models import build_model
from wenet_uio.models.cmvn import load_cmvn
from wenet_uio.models.weights import read_weights
from wenet_uio.train.averaging import choose_epochs, newest_running
from wenet_uio.train.checkpoint import RunFolder
from wenet_uio.train.distributed import StopRequest
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.metrics import Totals
from wenet_uio.train.nonfinite import NonfiniteFile
from wenet_uio.train.report import Reporter
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.watchdog import Watchdog

NORMS = ("batch_norm", "layer_norm")
DTYPES = ("fp32", "bf16", "fp16")


def conformer(norm: str, **keys: Any) -> Any:
    shape = small_config().encoder_conf.model_dump(exclude_defaults=True)
    shape |= {"num_blocks": 1, "cnn_module_norm": norm}
    fixed = {"encoder_conf": shape, "input_dim": 2 * FEATURES, "observe_interval": 0}
    return small_config(**{**fixed, **keys})


def engine_of(norm: str, **keys: Any) -> DdpEngine:
    config = conformer(norm, **keys)
    torch.manual_seed(1)
    engine = DdpEngine(build_model(config), config, CPU, seed=5)
    engine.connect()
    return engine


def tiny(seed: int, *, spoilt: bool = False) -> Batch:
    """Two utterances; the second may have a NaN."""
    batch = tiny_batch([60, 40], seed, tokens=3)
    if spoilt:
        batch.feats[1, 7, 2] = math.nan
    return batch


def audio(seed: int, *, spoilt: bool = False) -> Batch:
    """The same with twice as many features: with 8, torch 2.11 on a CPU with AMX computes NaN of
    finite numbers in bf16, in a convolution whose output has one feature.
    """
    batch = tiny(seed, spoilt=spoilt)
    return replace(
        batch, feats=batch.feats.repeat(1, 1, 2), texts=batch.keys, extra=({},) * len(batch)
    )


def state_of(engine: DdpEngine) -> dict[str, Any]:
    """Weights and statistics, and state of the optimizer."""
    state = deepcopy(engine.state_dict())
    return {name: state[name] for name in ("model", "optimizer")}


def assert_equal(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("optim", "norm", "dtype", "accum"),
    [
        *(("adam", norm, dtype, 1) for norm, dtype in product(NORMS, DTYPES)),
        ("adamw", "batch_norm", "fp32", 3),
        ("scaled_adam", "batch_norm", "fp32", 3),
        ("muon", "batch_norm", "bf16", 1),
    ],
)
def test_a_skipped_step_leaves_weights_optimizer_and_statistics_as_they_are(
    optim: str, norm: str, dtype: str, accum: int
) -> None:
    engine = engine_of(norm, dtype=dtype, optim=optim)
    if engine.scaler.is_enabled():
        engine.scaler.load_state_dict({**engine.scaler.state_dict(), "scale": 64.0})
    assert engine.step([audio(1)], 1, {}).applied
    before = state_of(engine)
    batches = [audio(seed, spoilt=seed == 3) for seed in range(4 - accum, 4)]
    assert not engine.step(batches, 2, {}).applied
    assert_equal(state_of(engine), before)
    assert engine.step([audio(4)], 3, {}).applied
    assert not torch.equal(engine.weights()["ctc.ctc_lo.bias"], before["model"]["ctc.ctc_lo.bias"])


class OwnStatistics(TinyModel):
    """Counts its batches and keeps a mean, and one in another type, as buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int32))
        self.register_buffer("mean", torch.zeros(2, 3, dtype=torch.float64))

    def forward(self, feats: torch.Tensor, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.batches += 1
            self.mean.lerp_(feats.mean().double(), 0.5)
        return super().forward(self.norm(feats[:, None])[:, 0], *tensors)


def test_statistics_of_any_layer_are_those_before_a_skipped_step() -> None:
    engine = DdpEngine(OwnStatistics(), conformer("layer_norm"), CPU, seed=5)
    engine.connect()
    assert engine.step([tiny(1)], 1, {}).applied
    before = state_of(engine)
    assert before["model"]["batches"] == 1
    assert not engine.step([tiny(2, spoilt=True)], 2, {}).applied
    assert_equal(state_of(engine), before)


@pytest.mark.parametrize("engine", ["torch_ddp", "torch_fsdp"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_keep_statistics_and_shares_if_one_spoils_a_step_and_name_what_spoils_a_validation(
    engine: str, dtype: str, tmp_path: Path
) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = [*launch, skipping_ranks.__file__, engine, dtype, tmp_path]
    done = preloaded.run(command)
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for rank in ranks:
        assert rank["applied"] == [True, False, True]
        assert_equal(rank["skipped"], rank["before"])
        assert rank["before"]["buffers"]
        assert rank["left_out"] == ["100-1"]
        finite, spoilt = rank["validated"]
        assert spoilt == pytest.approx(finite, rel=1e-2 if dtype == "bf16" else 1e-4)
    assert ranks[0]["validated"] == ranks[1]["validated"]
    assert ranks[0]["scale"] == ranks[1]["scale"]
    assert not torch.equal(  # each rank has its own
        *(
            rank["before"]["buffers"]["encoder.encoders.0.conv_module.norm.running_mean"]
            for rank in ranks
        )
    )


def trainer_of(path: Path, train: list[Batch], cv: list[Batch], norm: str, **keys: Any) -> Trainer:
    """A new or resumed run of a small conformer."""
    config = conformer(norm, **{"max_epoch": 2, "report": False, **keys})
    torch.manual_seed(7)
    engine = DdpEngine(build_model(config), config, CPU, seed=7)
    folder = RunFolder(path)
    trainer = Trainer(
        config,
        engine,
        folder,
        train=ListLoader(train),
        cv=ListLoader(cv),
        reporter=Reporter(True, path / "tensorboard", config.max_epoch),
        watchdog=Watchdog(CPU, 0),
        stop=StopRequest(),
    )
    state = folder.newest_state()
    if state is not None:
        trainer.load(state)
    return trainer


EVENTS = {
    "one sample": [3],
    "a streak": [2, 3, 4],
    "a whole epoch": [1, 2, 3, 4, 5],
    "the first steps": [1, 2],
    "the last step": [5],
}
"""{what happens: spoilt batches of an epoch of five}."""


@pytest.mark.third
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(
    ("norm", "dtype"), [*product(NORMS, ("fp32",)), ("batch_norm", "bf16"), ("batch_norm", "fp16")]
)
@pytest.mark.parametrize("log_interval", [1, 1000])
def test_a_run_with_skipped_steps_ends_with_finite_weights_statistics_and_validation(
    event: str,
    norm: str,
    dtype: str,
    log_interval: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    train = [audio(seed, spoilt=seed in EVENTS[event]) for seed in range(1, 6)]
    keys = {"dtype": dtype, "log_interval": log_interval, "model_avg": {"interval": 1}}
    with caplog.at_level(logging.INFO):
        assert trainer_of(tmp_path, train, [audio(9)], norm, **keys).run()

    read_weights(tmp_path / "final.pt")  # refuses what is not finite
    assert (tmp_path / "final.pt").resolve().name == "epoch_1.pt"
    records = [json.loads(line) for line in (tmp_path / "nonfinite.jsonl").read_text().splitlines()]
    steps = {record["step"]: record["utterances"] for record in records}
    for epoch, number in product(range(2), EVENTS[event]):
        assert steps[5 * epoch + number] == [f"{number}-0", f"{number}-1"]

    last = yaml.safe_load((tmp_path / "epoch_1.yaml").read_text())
    assert math.isfinite(last["loss_dict"]["loss"])
    all_skipped = last["nonfinite_steps"] == 5
    assert bool(last["train_loss_dict"]) != all_skipped
    assert ("no train loss (no step was applied)" in caplog.text) == (
        all_skipped or log_interval == 1
    )
    for name, points in series(tmp_path).items():
        assert name == "train/grad_norm" or all(math.isfinite(value) for _, value in points)


@pytest.mark.parametrize("late", [False, True])
def test_a_skipped_step_does_not_count_in_the_running_average(late: bool, tmp_path: Path) -> None:
    averages = []
    for name, spoilt in (("quiet", []), ("disturbed", [2, 5])):
        train = [tiny(seed, spoilt=seed in spoilt) for seed in range(1, 6)]
        if name == "quiet":
            train = [train[number] for number in (0, 2, 3)]
        make = late_trainer if late else make_trainer
        trainer = make(
            tmp_path / name,
            ListLoader(train),
            max_epoch=1,
            model_avg={"interval": 1},
        )
        trainer.engine.model.dropout.p = 0.0
        trainer.engine.schedule = lambda *_: 1.0
        assert trainer.run()
        assert trainer.average is not None
        averages.append((trainer.average.count, trainer.average.weights(trainer.engine.weights())))
    assert_equal(averages[1], averages[0])
    assert averages[0][0] == 3


@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("late", [False, True])
def test_so_many_steps_in_a_row_may_be_skipped_and_the_next_one_ends_the_run(
    most: int, late: bool, tmp_path: Path
) -> None:
    train = [tiny(seed, spoilt=True) for seed in range(1, 6)]
    make = late_trainer if late else make_trainer
    trainer = make(tmp_path, ListLoader(train), max_nonfinite_steps=most, log_interval=1)
    with pytest.raises(ValueError, match=rf"after {most} steps in a row") as error:
        trainer.run()
    step = most + 1
    assert str(error.value) == (
        f"step {step}: its gradient is not finite, after {most} steps in a row that were skipped "
        f"(max_nonfinite_steps is {most}): lower optim_conf.lr, or check the data (utterances: "
        f"{step}-0 {step}-1; all in {tmp_path / 'nonfinite.jsonl'})"
    )
    steps = [json.loads(line) for line in (tmp_path / "nonfinite.jsonl").read_text().splitlines()]
    assert [record["step"] for record in steps] == [*range(1, step + 1)]


def test_a_resumed_run_has_each_step_once_in_the_file_and_a_new_run_begins_it_anew(
    tmp_path: Path,
) -> None:
    train = [tiny(seed, spoilt=seed in (1, 4, 5)) for seed in range(1, 6)]
    for _ in range(2):  # the last state is that of step 2
        keys = {"max_nonfinite_steps": 1, "save_interval": 2}
        with pytest.raises(ValueError, match="step 5"):
            make_trainer(tmp_path, ListLoader(train), **keys).run()
        lines = (tmp_path / "nonfinite.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 4, 5]

    for state in tmp_path.glob("state_*.pt"):
        state.unlink()
    assert make_trainer(tmp_path, max_epoch=1).run()
    assert not (tmp_path / "nonfinite.jsonl").exists()


def test_a_skipped_step_does_not_read_those_before_it_again(tmp_path: Path) -> None:
    file = NonfiniteFile(tmp_path / "nonfinite.jsonl")
    for step in (1, 2):
        file.add("gradient", step, ["before"])
    file.begin(2)
    opened: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]) == str(file.path):
            opened.append(str(arguments[1]))

    sys.addaudithook(note)
    for step in (2, 3, 4):
        file.add("gradient", step, ["before"])
    assert opened
    assert not [mode for mode in opened if mode.startswith("r")]
    lines = file.path.read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("save_interval", [None, 1])
@pytest.mark.parametrize("at", [2, 5])
def test_weights_that_become_infinite_end_the_run_with_the_step_that_made_them_so(
    late: bool, save_interval: int | None, at: int, tmp_path: Path
) -> None:
    make = late_trainer if late else make_trainer
    train = [tiny(seed) for seed in range(1, 6)]
    trainer = make(tmp_path, ListLoader(train), save_interval=save_interval)
    calls = 0

    def spoil(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            with torch.no_grad():
                trainer.engine.model.output.bias[1] = math.inf

    connect = trainer.engine.connect
    trainer.engine.connect = lambda: (
        connect(),
        trainer.engine.optimizer.register_step_post_hook(spoil),
    )
    message = (
        rf"step {at}: weights \(output\.bias\) are infinite or NaN since this step.*{at}-0 {at}-1"
    )
    with pytest.raises(ValueError, match=message):
        trainer.run()
    for path in tmp_path.glob("state_*.pt"):
        assert torch.load(path)["progress"]["step"] < at
    assert RunFolder(tmp_path).newest_state() is not None


def test_statistics_that_become_infinite_with_a_finite_gradient_end_the_run(tmp_path: Path) -> None:
    train = [audio(seed) for seed in range(1, 6)]
    trainer = trainer_of(tmp_path, train, [audio(9)], "batch_norm")
    norm = trainer.engine.model.encoder.encoders[0].conv_module.norm

    def overflow(module: nn.Module, *_: object) -> None:
        if module.training and int(module.num_batches_tracked) == 3:
            module.running_var.data.fill_(math.inf)  # behind the back of autograd

    norm.register_forward_hook(overflow)
    with pytest.raises(ValueError, match=r"step 3: statistics.* are infinite or NaN.*3-0 3-1"):
        trainer.run()


def test_an_utterance_whose_validation_loss_is_not_finite_is_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [audio(seed) for seed in range(1, 4)]
    good = audio(9)
    clean = trainer_of(tmp_path / "clean", train, [good.rows(slice(1)), audio(10)], "batch_norm")
    assert clean.run()
    spoilt = trainer_of(
        tmp_path / "spoilt", train, [audio(9, spoilt=True), audio(10)], "batch_norm"
    )
    assert spoilt.run()
    losses = [
        yaml.safe_load((tmp_path / name / "epoch_1.yaml").read_text())["loss_dict"]
        for name in ("clean", "spoilt")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert (
        "left out 1 of 4 utterances, whose loss is not finite (utterances: 9-1; all in"
        in caplog.text
    )
    records = [
        json.loads(line) for line in (tmp_path / "spoilt/nonfinite.jsonl").read_text().splitlines()
    ]
    assert [(record["step"], record["utterances"]) for record in records] == [
        (3, ["9-1"]),
        (6, ["9-1"]),
    ]


def test_an_epoch_whose_validation_is_not_finite_is_told_and_is_never_final_best_or_averaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, cv = [audio(seed) for seed in range(1, 4)], [audio(9), audio(10)]
    keys = {"max_epoch": 4, "keep_last": 1, "keep_best": 1, "model_avg": {"interval": 1}}
    trainer = trainer_of(tmp_path, train, cv, "batch_norm", **keys)

    def spoil(module: nn.Module, *_: object) -> None:
        if trainer.progress.epoch >= 2 and not module.training:
            module.running_var.data, before = (
                torch.full_like(module.running_var, math.nan),
                module.running_var.data,
            )
            module.kept = before

    def mend(module: nn.Module, *_: object) -> None:
        if hasattr(module, "kept"):
            module.running_var.data = module.__dict__.pop("kept")

    norm = trainer.engine.model.encoder.encoders[0].conv_module.norm
    norm.register_forward_pre_hook(spoil)
    norm.register_forward_hook(mend)
    with caplog.at_level(logging.INFO):
        assert trainer.run()
    assert (
        "validation after step 12 is not finite: most utterances have no finite loss" in caplog.text
    )
    assert "the validation of epoch 3 is not finite, so final.pt is epoch 1" in caplog.text
    assert (tmp_path / "final.pt").resolve().name == "epoch_1.pt"
    assert math.isnan(yaml.safe_load((tmp_path / "epoch_3.yaml").read_text())["loss_dict"]["loss"])
    for val_best in (False, True):
        assert {epoch.number for epoch in choose_epochs(tmp_path, 5, val_best=val_best)} <= {0, 1}
    assert newest_running(tmp_path) == 1
    assert trainer.progress.epochs_since_best >= 2
    assert "cv loss not finite" in caplog.text


def test_a_run_without_any_finite_validation_ends_with_an_error_and_no_final(
    tmp_path: Path,
) -> None:
    cv = [audio(9), audio(10)]
    for batch in cv:
        batch.feats[:] = math.nan
    with pytest.raises(ValueError, match=r"no final\.pt, because no epoch has a finite validation"):
        trainer_of(tmp_path, [audio(1)], cv, "layer_norm", max_epoch=1).run()
    assert not (tmp_path / "final.pt").exists()
    with pytest.raises(ValueError, match=r"the validation loss of no epoch is finite, 1 in all"):
        choose_epochs(tmp_path, 5, val_best=False)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["model", "optimizer", "model_avg"])
def test_a_state_with_numbers_that_are_not_finite_is_refused(
    part: str, value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert make_trainer(tmp_path, max_epoch=1, save_interval=3, model_avg={"interval": 1}).run()
    newest, older = tmp_path / "state_5.pt", tmp_path / "state_3.pt"

    def spoil(path: Path) -> None:
        state = torch.load(path)
        tensors = {
            "model": state["model"],
            "optimizer": state["optimizer"]["hidden.bias"],
            "model_avg": state["model_avg"]["means"],
        }[part]
        next(iter(tensors.values())).view(-1)[0] = value
        torch.save(state, path)

    spoil(newest)
    loaded = RunFolder(tmp_path).newest_state()
    assert loaded is not None
    assert loaded["progress"]["step"] == 3
    assert f"{newest}: values of {part}/" in caplog.text
    spoil(older)
    with pytest.raises(ValueError, match=rf"state_5\.pt: values of {part}/.* --checkpoint"):
        RunFolder(tmp_path).newest_state()


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_weights_and_cmvn_statistics_that_are_not_finite_are_refused_with_their_file(
    value: float, tmp_path: Path
) -> None:
    path = tmp_path / "epoch_3.pt"
    torch.save({"a": torch.ones(2), "b": torch.tensor([0.0, value])}, path)
    with pytest.raises(ValueError, match=r"epoch_3\.pt: values of b are no numbers \(NaN\) or inf"):
        read_weights(path)

    cmvn = tmp_path / "global_cmvn"
    for name in ("mean_stat", "var_stat"):
        sums = {"mean_stat": [1.0, 2.0], "var_stat": [3.0, 5.0], "frame_num": 2}
        cmvn.write_text(json.dumps(sums | {name: [1.0, value]}))
        with pytest.raises(
            ValueError, match=rf"cmvn_file {cmvn}: sums that are infinite or no num"
        ):
            load_cmvn(cmvn, is_json=True, dim=2)


def test_sums_without_a_step_give_no_means_and_no_speed() -> None:
    assert Totals().losses() == Totals().throughput(1) == {}


@pytest.mark.parametrize("norm", NORMS)
def test_a_run_with_one_spoilt_sample_ends_within_noise_of_the_run_without_its_step(
    norm: str, tmp_path: Path
) -> None:
    losses = []
    for name in ("clean", "spoilt"):
        train = [audio(seed, spoilt=(name, seed) == ("spoilt", 4)) for seed in range(1, 9)]
        assert trainer_of(tmp_path / name, train, [audio(1), audio(2)], norm, max_epoch=4).run()
        losses.append(
            [
                yaml.safe_load((tmp_path / name / f"epoch_{epoch}.yaml").read_text())["loss_dict"]
                for epoch in (0, 3)
            ]
        )
    (first, clean), (_, spoilt) = losses
    learned = first["loss"] - clean["loss"]
    assert learned > 0
    assert abs(spoilt["loss"] - clean["loss"]) < 0.3 * learned
