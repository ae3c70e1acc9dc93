"""Runs that max_steps ends, and that a larger max_steps continues."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.train.tiny import ListLoader
from tests.support.train.training_corpus import write_corpus
from tests.train.test_trainer import (
    CV,
    TRAIN,
    DisturbedLoader,
    Killed,
    handler_of_sigterm,
    kill,
    make_trainer,
    same_weights,
    series,
)
from wenet_uio.bin import train
from wenet_uio.train import trainer as training


@pytest.fixture(scope="module", autouse=True)
def _without_report() -> Iterator[None]:
    """The report takes longer than the training."""
    with pytest.MonkeyPatch.context() as patch, handler_of_sigterm():
        patch.setattr(training, "show_complete", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of five steps, in one start."""
    path = tmp_path_factory.mktemp("undisturbed")
    make_trainer(path, max_epoch=2).run()
    return path


def test_max_steps_ends_the_run_with_a_validation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = make_trainer(tmp_path, max_steps=7, save_interval=7)
    with caplog.at_level(logging.INFO):
        assert trainer.run()
    assert (trainer.progress.step, trainer.progress.epoch) == (7, 1)
    assert os.readlink(tmp_path / "final.pt") == "epoch_1.pt"
    assert [step for step, _ in series(tmp_path)["cv/loss"]] == [5, 7]
    assert "training ends: max_steps 7 is reached" in caplog.text


def test_a_run_killed_in_its_last_validation_repeats_it(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        make_trainer(tmp_path, cv=DisturbedLoader(CV, 4, kill), max_steps=7, save_interval=7).run()
    assert not (tmp_path / "epoch_1.pt").exists()
    assert make_trainer(tmp_path, max_steps=7, save_interval=7).run()
    assert yaml.safe_load((tmp_path / "epoch_1.yaml").read_text())["step"] == 7


def test_a_run_that_max_steps_ended_inside_a_pass_is_extended_to_the_same_epochs(
    undisturbed: Path, tmp_path: Path
) -> None:
    make_trainer(tmp_path, max_epoch=2, max_steps=3).run()
    partial = yaml.safe_load((tmp_path / "epoch_0.yaml").read_text())
    assert (partial["step"], partial["samples"]["read"]) == (3, 9)
    assert os.readlink(tmp_path / "final.pt") == "epoch_0.pt"
    trainer = make_trainer(tmp_path, max_epoch=2)
    trainer.run()
    assert (trainer.progress.step, trainer.progress.epoch) == (10, 2)
    assert sorted(path.name for path in tmp_path.glob("epoch_*.pt")) == ["epoch_0.pt", "epoch_1.pt"]
    for epoch in range(2):
        assert same_weights(tmp_path / f"epoch_{epoch}.pt", undisturbed / f"epoch_{epoch}.pt")
        found, expected = (
            yaml.safe_load((path / f"epoch_{epoch}.yaml").read_text())
            for path in (tmp_path, undisturbed)
        )
        for name in ("step", "loss_dict", "train_loss_dict", "samples"):
            assert found[name] == expected[name], name
    assert [step for step, _ in series(tmp_path)["cv/loss"]] == [3, 5, 10]


def test_a_run_extended_within_its_first_pass_is_not_complete_at_max_epoch_1(
    tmp_path: Path,
) -> None:
    make_trainer(tmp_path, max_epoch=1, max_steps=3).run()
    trainer = make_trainer(tmp_path, max_epoch=1)
    trainer.run()
    assert (trainer.progress.step, trainer.progress.epoch) == (5, 1)


def test_a_run_may_be_extended_several_times_within_one_pass(
    undisturbed: Path, tmp_path: Path
) -> None:
    for max_steps in (1, 2, 4, 5, 6):
        trainer = make_trainer(tmp_path, max_epoch=2, max_steps=max_steps)
        trainer.run()
        assert trainer.progress.epoch == max_steps // 5
    assert make_trainer(tmp_path, max_epoch=2).run()
    assert same_weights(tmp_path / "epoch_1.pt", undisturbed / "epoch_1.pt")


def test_a_partial_epoch_started_again_with_the_same_max_steps_is_complete(tmp_path: Path) -> None:
    make_trainer(tmp_path, max_steps=3).run()
    before = (tmp_path / "epoch_0.pt").stat().st_mtime_ns
    make_trainer(tmp_path, max_steps=3).run()
    assert os.readlink(tmp_path / "final.pt") == "epoch_0.pt"
    assert (tmp_path / "epoch_0.pt").stat().st_mtime_ns == before


def test_an_extended_run_that_is_killed_resumes_in_the_same_epoch(
    undisturbed: Path, tmp_path: Path
) -> None:
    with pytest.raises(Killed):  # in the validation of the partial epoch
        make_trainer(
            tmp_path, cv=DisturbedLoader(CV, 1, kill), max_epoch=2, max_steps=3, save_interval=3
        ).run()
    with pytest.raises(Killed):
        make_trainer(tmp_path, DisturbedLoader(TRAIN, 4, kill), max_epoch=2, save_interval=1).run()
    make_trainer(tmp_path, max_epoch=2).run()
    for epoch in range(2):
        assert same_weights(tmp_path / f"epoch_{epoch}.pt", undisturbed / f"epoch_{epoch}.pt")


def test_every_utterance_of_an_extended_epoch_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    monkeypatch.chdir(tmp_path)
    command = (
        "--config train.yaml --train_data train.list --cv_data cv.list --device cpu --model_dir exp"
    )
    for options in ("--override_config max_steps=4", ""):
        assert train.main(f"{command} {options}".split()) == 0
    record = yaml.safe_load((tmp_path / "exp/epoch_0.yaml").read_text())
    assert (record["step"], record["samples"]["all"], record["samples"]["read"]) == (6, 22, 22)
    assert not (tmp_path / "exp/epoch_1.yaml").exists()


def test_the_validation_of_a_partial_epoch_does_not_count_for_patience(tmp_path: Path) -> None:
    keys = {"max_epoch": 9, "patience": 2, "optim_conf": {"lr": 1e-30}}
    for max_steps in (6, 7, 8, None):
        trainer = make_trainer(tmp_path, ListLoader(TRAIN), max_steps=max_steps, **keys)
        trainer.run()
    assert trainer.progress.epoch == 3
