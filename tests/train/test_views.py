"""Training on two views of each utterance (CR-CTC): the warm-up of the weight, resuming, running
out of memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.train.tiny import CPU, ListLoader, small_config, tiny_batch, two_views
from tests.train.test_trainer import DisturbedLoader, Killed, kill, same_weights
from wenet_uio.models import build_model
from wenet_uio.train import trainer as training
from wenet_uio.train.checkpoint import RunFolder
from wenet_uio.train.distributed import StopRequest
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.objective import cr_weight
from wenet_uio.train.report import Reporter
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.watchdog import Watchdog

KEYS = {"cr_loss_scale": 0.5, "cr_warmup_steps": 6, "model_conf": {"ctc_weight": 0.3}}
TRAIN = [two_views(tiny_batch([60, 40, 30], seed, tokens=2)) for seed in range(4)]
CV = [tiny_batch([40, 20], seed) for seed in range(10, 12)]


def make_trainer(path: Path, train: ListLoader, **keys: Any) -> Trainer:
    config = small_config(
        **{"max_epoch": 2, "save_interval": 3, "observe_interval": 0, **KEYS, **keys}
    )
    torch.manual_seed(7)
    engine = DdpEngine(build_model(config), config, CPU, seed=7)
    folder, reporter = RunFolder(path), Reporter(True, path / "tensorboard", config.max_epoch)
    trainer = Trainer(
        config,
        engine,
        folder,
        train=train,
        cv=ListLoader(CV),
        reporter=reporter,
        watchdog=Watchdog(CPU, 0),
        stop=StopRequest(),
    )
    if (state := folder.newest_state()) is not None:
        trainer.load(state)
    return trainer


@pytest.fixture(autouse=True)
def _without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "show_complete", lambda *_, **__: None)


def test_a_killed_and_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    assert make_trainer(tmp_path / "whole", ListLoader(TRAIN)).run()
    with pytest.raises(Killed):
        make_trainer(tmp_path / "killed", DisturbedLoader(TRAIN, 5, kill)).run()
    assert make_trainer(tmp_path / "killed", ListLoader(TRAIN)).run()
    assert same_weights(tmp_path / "killed/epoch_1.pt", tmp_path / "whole/epoch_1.pt")


def test_the_divergence_is_reported_in_training_and_is_no_part_of_validation(
    tmp_path: Path,
) -> None:
    trainer = make_trainer(tmp_path, ListLoader(TRAIN), max_epoch=1)
    assert trainer.run()
    (record,) = [path.read_text() for path in tmp_path.glob("epoch_*.yaml")]
    cv, train = record.split("train_loss_dict")
    assert "loss_cr" in train
    assert "loss_cr" not in cv


def test_the_weight_rises_to_its_scale_in_the_warm_up() -> None:
    config = small_config(**KEYS)
    assert [cr_weight(config, step) for step in (1, 3, 6, 100)] == pytest.approx(
        [0.5 / 6, 0.25, 0.5, 0.5]
    )
    assert cr_weight(small_config(), 1) == 0
    assert cr_weight(small_config(cr_loss_scale=0.5), 1) == 0.5


def test_a_batch_that_is_split_keeps_the_views_together() -> None:
    def gradient(parts: list[list[int]]) -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        config = small_config(**KEYS, grad_clip=1000)
        engine = DdpEngine(build_model(config), config, CPU, seed=5)
        engine.connect()
        found: dict[str, torch.Tensor] = {}
        engine.optimizer.register_step_pre_hook(
            lambda *_: found.update(
                (n, w.grad.clone())
                for n, w in engine.model.named_parameters()
                if w.grad is not None
            )
        )
        engine.step([TRAIN[0].rows(slice(*rows)) for rows in parts], 6, {})
        return found

    whole, halves = gradient([[0, 3]]), gradient([[0, 1], [1, 3]])
    for name, value in whole.items():
        torch.testing.assert_close(halves[name], value, rtol=1e-5, atol=1e-6)
