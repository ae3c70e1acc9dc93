"""The running average of the weights: its updates, its files, resuming, and averages of ranges of
epochs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from tests.support.train.tiny import tiny_config
from tests.train.test_trainer import (
    TRAIN,
    DisturbedLoader,
    Killed,
    kill,
    make_trainer,
    same_weights,
)
from wenet_uio.bin import average_model
from wenet_uio.config import ConfigError
from wenet_uio.config.train import ModelAvgConf
from wenet_uio.train import trainer as training
from wenet_uio.train.averaging import newest_running, running_weights, usual_range
from wenet_uio.train.running_average import RunningAverage


@pytest.fixture(autouse=True)
def _without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "show_complete", lambda *_, **__: None)


def train(
    path: Path, monkeypatch: pytest.MonkeyPatch, **model_avg: object
) -> list[dict[str, torch.Tensor]]:
    """A run of three epochs of five steps; its weights after each step."""
    trainer = make_trainer(path, model_avg=model_avg)
    seen: list[dict[str, torch.Tensor]] = []
    average = trainer._average_weights

    def remember() -> None:
        seen.append({name: value.clone() for name, value in trainer.engine.weights().items()})
        average()

    monkeypatch.setattr(trainer, "_average_weights", remember)
    assert trainer.run()
    return seen


def close(found: dict[str, torch.Tensor], expected: list[dict[str, torch.Tensor]]) -> None:
    for name, value in found.items():
        mean = torch.stack([weights[name].double() for weights in expected]).mean(0)
        torch.testing.assert_close(value, mean.float(), rtol=1e-5, atol=1e-6)


def test_the_average_is_the_mean_of_the_weights_after_every_interval(
    tmp_path: Path, monkeypatch
) -> None:
    seen = train(tmp_path, monkeypatch, interval=2, since=3)
    close(torch.load(tmp_path / "running_2.pt"), [seen[step - 1] for step in (4, 6, 8, 10, 12, 14)])
    close(torch.load(tmp_path / "running_0.pt"), [seen[3]])
    record = yaml.safe_load((tmp_path / "epoch_2.yaml").read_text())
    assert record["model_avg"] == {"count": 6, "decay": None, "since": 3}


def test_an_exponential_average_forgets_by_its_decay(tmp_path: Path, monkeypatch) -> None:
    seen = train(tmp_path, monkeypatch, interval=5, decay=0.75)
    found = torch.load(tmp_path / "running_2.pt")
    for name, value in found.items():
        first, second, third = (seen[step - 1][name] for step in (5, 10, 15))
        torch.testing.assert_close(value, 0.75 * (0.75 * first + 0.25 * second) + 0.25 * third)
    with pytest.raises(ValueError, match="an exponential average has no ranges"):
        running_weights(tmp_path, 2, num=1)


@pytest.mark.parametrize("at", [3, 7, 14])
def test_a_killed_and_resumed_run_has_the_average_of_an_undisturbed_one(
    at: int, tmp_path: Path
) -> None:
    keys = {"save_interval": 2, "model_avg": {"interval": 3}}
    assert make_trainer(tmp_path / "whole", **keys).run()
    with pytest.raises(Killed):
        make_trainer(tmp_path / "killed", DisturbedLoader(TRAIN, at, kill), **keys).run()
    assert make_trainer(tmp_path / "killed", **keys).run()
    for epoch in range(3):
        assert same_weights(
            tmp_path / f"killed/running_{epoch}.pt", tmp_path / f"whole/running_{epoch}.pt"
        )


def test_a_run_with_an_average_has_the_weights_of_a_run_without(tmp_path: Path) -> None:
    assert make_trainer(tmp_path / "with", model_avg={"interval": 1}).run()
    assert make_trainer(tmp_path / "without").run()
    assert same_weights(tmp_path / "with/epoch_2.pt", tmp_path / "without/epoch_2.pt")
    assert not list((tmp_path / "without").glob("running_*"))


def test_a_run_that_resumes_with_the_key_begins_its_average_there(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        make_trainer(tmp_path, DisturbedLoader(TRAIN, 7, kill), save_interval=2).run()
    assert make_trainer(tmp_path, model_avg={"interval": 2}).run()
    # 8, 10, 12, 14
    assert yaml.safe_load((tmp_path / "epoch_2.yaml").read_text())["model_avg"]["count"] == 4


@pytest.mark.parametrize(
    ("then", "now"), [({"decay": 0.5}, {}), ({}, {"since": 3}), ({"interval": 1}, {"interval": 2})]
)
def test_an_average_does_not_go_on_in_another_way(then, now, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        make_trainer(
            tmp_path, DisturbedLoader(TRAIN, 7, kill), save_interval=2, model_avg=then
        ).run()
    with pytest.raises(
        ValueError, match=r"the average of this run has .*, the config has .*: give the former"
    ):
        make_trainer(tmp_path, model_avg=now).run()


def test_a_range_of_epochs_has_the_mean_of_its_own_weights(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    seen = train(tmp_path, monkeypatch, interval=1)
    close(running_weights(tmp_path, 2, num=1), seen[10:])
    close(running_weights(tmp_path, 1, num=1), seen[5:10])
    close(running_weights(tmp_path, 2, num=7), seen)
    options = ["--dst_model", str(tmp_path / "avg.pt"), "--src_path", str(tmp_path), "--running"]
    for more, expected in ([], seen), (["--num", "2"], seen[5:]), (["--max_epoch", "1"], seen[:10]):
        average_model.main([*options, *more])
        close(torch.load(tmp_path / "avg.pt"), expected)
    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .endswith("running average at the end of epoch 2, of the last 2 epochs")
    )
    assert usual_range(tmp_path, 2) is None  # no more than 5 epochs


def test_by_default_the_last_five_epochs_are_averaged_or_as_few_more_as_were_kept(
    tmp_path: Path,
) -> None:
    for epoch in range(9):
        (tmp_path / f"running_{epoch}.pt").touch()
        (tmp_path / f"epoch_{epoch}.yaml").write_text(
            "model_avg: {count: 3, decay: null, since: 0}\n"
        )
    assert usual_range(tmp_path, 8) == 5
    assert usual_range(tmp_path, 4) is None
    (tmp_path / "running_3.pt").unlink()
    assert usual_range(tmp_path, 8) == 6
    for chosen in "{count: 3, decay: 0.9, since: 0}", "{count: 3, decay: null, since: 7}":
        (tmp_path / "epoch_8.yaml").write_text(f"model_avg: {chosen}\n")
        assert usual_range(tmp_path, 8) is None


def test_a_range_that_begins_before_the_average_is_the_whole_average(
    tmp_path: Path, monkeypatch
) -> None:
    seen = train(tmp_path, monkeypatch, interval=1, since=6)
    assert not (tmp_path / "running_0.pt").exists()
    close(running_weights(tmp_path, 2, num=2), seen[6:])


def test_averages_that_do_not_exist_are_refused(tmp_path: Path, monkeypatch) -> None:
    train(tmp_path, monkeypatch, interval=8)
    assert newest_running(tmp_path) == 2
    with pytest.raises(
        ValueError, match=r"no weights were averaged in epochs 2 to 2; give a larger --num"
    ):
        running_weights(tmp_path, 2, num=1)
    with pytest.raises(ValueError, match=r"no running_N\.pt; train with model_avg"):
        newest_running(tmp_path, max_epoch=0)


def test_averages_are_deleted_with_the_weights_of_their_epoch(tmp_path: Path) -> None:
    assert make_trainer(tmp_path, keep_last=1, keep_best=0, model_avg={"interval": 1}).run()
    assert [path.name for path in tmp_path.glob("running_*")] == ["running_2.pt"]


def test_integer_buffers_are_the_newest() -> None:
    average = RunningAverage(ModelAvgConf())
    for number in (3, 8):
        average.add({"w": torch.tensor([float(number)]), "seen": torch.tensor(number)})
    found = average.weights({"w": torch.zeros(1), "seen": torch.tensor(0)})
    assert found == {"w": torch.tensor([5.5]), "seen": torch.tensor(8)}


@pytest.mark.parametrize(
    "keys", [{"decay": 0.9, "since": 3}, {"interval": 0}, {"decay": 1.0}, {"every": 3}]
)
def test_impossible_keys_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="model_avg"):
        tiny_config(model_avg=keys)
