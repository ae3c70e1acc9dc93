"""Trackers beside TensorBoard: every point once, whatever is killed, fails or hangs."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import preloaded
from tests.support.train.training_corpus import write_corpus
from wenet_uio.config import parse_config
from wenet_uio.train import trackers as module
from wenet_uio.train.report import Reporter
from wenet_uio.train.trackers import (
    RECORD,
    Entry,
    Trackers,
    check_trackers,
    new_run_number,
    open_board,
)

ROOT = Path(__file__).parents[2]
KINDS = (("audio", "wav"), ("ctc", "png"), ("text", "txt"))
POINTS = {f"train/{name}": 0.5 for name in ("loss", "lr")}


class Store:
    """A tracker's server: {run: entries}; it fails where `fails` says so."""

    def __init__(self, fails=lambda number: False) -> None:
        self.runs: dict[str, list[Entry]] = {}
        self.fails = fails
        self.calls = 0

    def open(self, name, folder, run, config):
        return Board(self, run)

    def points(self) -> list[tuple[str, int]]:
        (entries,) = self.runs.values()
        return [(name, entry.step) for entry in entries for name in sorted(entry.names())]


class Board:
    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        store.runs.setdefault(run, [])

    def write(self, entry: Entry) -> None:
        self.store.calls += 1
        if self.store.fails(self.store.calls):
            raise ConnectionError("the server does not answer")
        self.store.runs[self.run].append(entry)

    def close(self, *, complete: bool) -> None:
        self.complete = complete


@pytest.fixture
def store(monkeypatch):
    made = Store()
    monkeypatch.setattr(module, "open_board", made.open)
    return made


def opened(folder: Path, written=None, tracker="wandb") -> Trackers:
    trackers = Trackers(("tensorboard", tracker), folder, {})
    trackers.open(written)
    return trackers


def expected(steps: int) -> list[tuple[str, int]]:
    return [(name, step) for step in range(1, steps + 1) for name in sorted(POINTS)]


@pytest.mark.parametrize("seed", range(20))
def test_after_any_kills_and_resumes_a_run_has_every_point_once_in_order(seed, store, tmp_path):
    """A kill loses what waits, and sets the run back to its newest state."""
    drawn = random.Random(seed)
    steps, state, curves = 30, 0, None
    for kill in [*sorted(drawn.sample(range(1, steps), 3)), steps]:
        trackers = opened(tmp_path, curves)
        written = {name: list(points) for name, points in (curves or {}).items()}
        for step in range(state + 1, kill + 1):
            trackers.write(Entry(step, POINTS))
            for name, value in POINTS.items():
                written.setdefault(name, []).append((step, value))
        if kill < steps and drawn.random() < 0.5:  # the kill comes before the thread has sent all
            sender = trackers._senders[0]
            while not sender._given.empty():
                sender._given.get()
        trackers.close(complete=kill == steps)
        # The newest state is at this step or an earlier one; TensorBoard is cut there.
        state = drawn.randint(state, kill)
        curves = {name: points[:state] for name, points in written.items()}

    assert sorted(store.points()) == sorted(expected(steps))
    of_curve = [step for name, step in store.points() if name == "train/loss"]
    assert of_curve == sorted(of_curve)


def test_a_tracker_that_is_added_to_a_run_gets_its_whole_curves(store, tmp_path):
    curves = {name: [(step, 0.5) for step in range(1, 6)] for name in POINTS}
    trackers = opened(tmp_path, curves)
    trackers.write(Entry(6, POINTS))
    trackers.close(complete=True)
    assert store.points() == expected(6)


def test_a_new_run_in_a_folder_does_not_continue_the_old_one(store, tmp_path):
    for _ in range(2):
        trackers = opened(tmp_path)
        trackers.write(Entry(1, POINTS))
        trackers.close(complete=True)
    assert [len(entries) for entries in store.runs.values()] == [1, 1]


def test_curves_are_sent_again_after_failures_which_are_said_once(store, tmp_path, caplog):
    store.fails = lambda number: number % 3 == 0
    trackers = opened(tmp_path)
    for step in range(1, 10):
        trackers.write(Entry(step, POINTS))
    trackers.close(complete=True)
    assert store.points() == expected(9)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message == (
        "wandb does not answer as it should, training goes on: ConnectionError: the server does not "
        "answer"
    )


def test_a_picture_that_cannot_be_sent_is_counted_and_delays_no_curve(store, tmp_path, caplog):
    store.fails = lambda number: number == 1
    trackers = opened(tmp_path)
    trackers.write(Entry(1, {}, {"dev/ctc": np.zeros((1, 1, 3), np.uint8)}))
    trackers.write(Entry(1, POINTS))
    trackers.close(complete=True)
    assert store.points() == expected(1)
    assert caplog.records[-1].getMessage().startswith("wandb: 1 entries are lost there and 0 not")


def test_a_tracker_that_cannot_be_opened_costs_its_entries_only(monkeypatch, tmp_path, caplog):
    def refuse(*_):
        raise OSError("no server")

    monkeypatch.setattr(module, "open_board", refuse)
    trackers = opened(tmp_path)
    trackers.write(Entry(1, POINTS))
    trackers.close(complete=True)
    assert "wandb: 0 entries are lost there and 1 not sent" in caplog.text


@pytest.mark.parametrize(
    ("tracker", "chosen", "number"),
    [
        ("wandb", None, r"[0-9a-f]{8}"),
        ("wandb", "mine", "mine"),
        ("mlflow", None, r"new-[0-9a-f]{16}"),
    ],
)
def test_a_run_that_is_killed_while_a_tracker_opens_it_is_opened_again(
    tracker, chosen, number, monkeypatch, tmp_path
):
    if chosen is None:
        monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    else:
        monkeypatch.setenv("WANDB_RUN_ID", chosen)
    opened_runs = []

    def never_opened(name, folder, run, config):
        opened_runs.append(run)
        raise OSError("killed")

    monkeypatch.setattr(module, "open_board", never_opened)
    for curves in (None, {"train/loss": [(1, 0.5)]}):  # a new run, then its resumption
        trackers = opened(tmp_path, curves, tracker)
        trackers.write(Entry(2, POINTS))
        trackers.close(complete=False)

    (run,) = set(opened_runs)
    assert re.fullmatch(number, run)


def test_a_tracker_that_hangs_delays_the_end_by_its_patience_only(monkeypatch, tmp_path, caplog):
    hang = threading.Event()
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    monkeypatch.setattr(module, "open_board", lambda *_: hang.wait())
    trackers = opened(tmp_path)
    for step in range(1, 20):
        trackers.write(Entry(step, POINTS))  # waits for nothing
    trackers.close(complete=True)
    hang.set()
    last = caplog.records[-1].getMessage()
    lost, waiting = (int(word) for word in last.split() if word.isdigit())
    assert lost + waiting == 19 + 1  # and the word that the run ends
    assert waiting <= 5 + 1


def test_a_tracker_that_is_not_installed_is_an_error_before_training(monkeypatch):
    monkeypatch.setattr("wenet_uio.base.imports.find_spec", lambda name: None)
    check_trackers(("tensorboard",))
    with pytest.raises(ValueError, match=r"needs wandb: pip install -r requirements/wandb\.txt"):
        check_trackers(("tensorboard", "wandb"))


def test_an_unknown_tracker_is_one_problem():
    with pytest.raises(ValueError, match=r"tracker\.0: .*'wandb'"):
        parse_config({"tracker": ["wanbd"]}, "train.yaml")


def test_only_an_enabled_reporter_opens_trackers(store, tmp_path):
    trackers = Trackers(("wandb",), tmp_path, {})
    reporter = Reporter(False, tmp_path / "tensorboard", 1, trackers=trackers)
    reporter.open(1, None)
    reporter.close()
    assert not store.runs
    assert not (tmp_path / RECORD).exists()


def trained(folder: Path, *names: str) -> None:
    """Train two ranks: killed in epoch 1 of 2, and resumed."""
    folder.mkdir()
    write_corpus(folder, tracker=list(names), log_interval=1, observe_interval=1)
    (folder / "kills.json").write_text(json.dumps([[0, "report", 5]]))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HOME": str(folder),  # without a key of wandb
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    done = preloaded.run(
        ["-m", "tests.support.train.killed_run", "kills.json"], cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"survived": 0, "complete": True}
    assert "training goes on" not in done.stderr, done.stderr
    assert "not sent" not in done.stderr, done.stderr


def curves_of_tensorboard(folder: Path) -> dict[str, list[int]]:
    """{curve: its steps}."""
    reporter = Reporter(True, folder / "exp/tensorboard", 1)
    file = next((folder / "exp/tensorboard").glob("events.*"))
    reporter._run = file.name.rpartition(".")[2]
    return {name: [step for step, _ in points] for name, points in reporter._read_curves().items()}


def everything(step: int) -> Entry:
    """An entry of every kind."""
    picture, sound = np.full((4, 6, 3), 255, np.uint8), np.zeros(1600, np.float32)
    return Entry(
        step, POINTS, {"dev/ctc": picture}, {"dev/text": "a < b"}, {"dev/audio": (sound, 16000)}
    )


def written_twice(name: str, folder: Path) -> str:
    """Write everything to a new run of a tracker, and to the same run after it was closed."""
    board = open_board(name, folder, new_run_number(name), {"max_epoch": 2})
    board.write(everything(1))
    board.close(complete=False)
    again = open_board(name, folder, board.run, {"max_epoch": 2})
    again.write(everything(2))
    again.close(complete=True)
    assert again.run == board.run
    return board.run


@pytest.fixture
def no_place(tmp_path, monkeypatch):
    """No variable and no key names a server; the folder of a run."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "exp"
    folder.mkdir()
    return folder


needs_mlflow = pytest.mark.skipif(not find_spec("mlflow"), reason="mlflow is not installed")
needs_wandb = pytest.mark.skipif(not find_spec("wandb"), reason="wandb is not installed")


@needs_mlflow
def test_mlflow_has_everything_in_one_run_in_the_folder_of_the_run(no_place):
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    run = written_twice("mlflow", no_place)
    client = MlflowClient(f"sqlite:///{no_place}/mlflow.db")
    assert client.get_run(run).info.status == "FINISHED"
    assert [point.step for point in client.get_metric_history(run, "train/loss")] == [1, 2]
    (files,) = (no_place / "mlflow").glob("*/artifacts")
    assert sorted(str(path.relative_to(files)) for path in files.rglob("*.*")) == [
        *(f"dev/{kind}/{step}.{suffix}" for kind, suffix in KINDS for step in (1, 2)),
        "train.yaml",
    ]


@needs_mlflow
@pytest.mark.parametrize("call", ["create_run", "log_text", "update_run"])
def test_a_run_of_mlflow_whose_number_is_lost_after_any_call_is_found_again(
    call, no_place, monkeypatch
):
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    made = getattr(MlflowClient, call)

    def killed(*arguments, **named):
        made(*arguments, **named)
        raise OSError("killed")

    name = new_run_number("mlflow")
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, call, killed)
        with pytest.raises(OSError, match="killed"):
            open_board("mlflow", no_place, name, {"max_epoch": 2})
    boards = [open_board("mlflow", no_place, name, {"max_epoch": 2}) for _ in range(2)]
    other = open_board("mlflow", no_place, new_run_number("mlflow"), {"max_epoch": 2})
    for board in (boards[0], other):
        board.close(complete=True)

    client = MlflowClient(f"sqlite:///{no_place}/mlflow.db")
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert boards[0].run == boards[1].run != other.run
    assert {run.info.run_id for run in runs} == {boards[0].run, other.run}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(list((no_place / "mlflow").glob("*/artifacts/train.yaml"))) == 2


@needs_wandb
def test_wandb_without_a_key_has_everything_in_offline_files_of_one_run(no_place):
    run = written_twice("wandb", no_place)
    rows = rows_of_wandb(no_place / "wandb")
    assert [(of, row["step"], row["train/loss"]) for of, row in rows] == [
        (run, 1, 0.5),
        (run, 2, 0.5),
    ]
    media = {path.parts[-3] for path in no_place.glob("wandb/*/files/media/*/dev/*")}
    assert media == {"audio", "html", "images"}


@needs_mlflow
def test_a_killed_and_resumed_training_is_one_run_of_mlflow_with_the_curves(tmp_path):
    trained(tmp_path / "a", "mlflow")
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client = MlflowClient(f"sqlite:///{tmp_path}/a/exp/mlflow.db")
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert run.info.status == "FINISHED"
    for name, steps in curves_of_tensorboard(tmp_path / "a").items():
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted(point.step for point in history) == steps, name


@needs_wandb
def test_a_killed_and_resumed_training_is_one_offline_run_of_wandb_with_the_curves(tmp_path):
    trained(tmp_path / "a", "wandb")
    rows = rows_of_wandb(tmp_path / "a" / "exp" / "wandb")
    assert len({run for run, _ in rows}) == 1
    for name, steps in curves_of_tensorboard(tmp_path / "a").items():
        assert [row["step"] for _, row in rows if name in row] == steps, name


def rows_of_wandb(folder: Path) -> list[tuple[str, dict[str, object]]]:
    """(run, row of the history) of the offline files, in the order of their starts, when the process
    of wandb has closed the last one.
    """
    give_up = time.monotonic() + 120
    while True:
        paths = sorted(folder.glob("offline-run-*/*.wandb"))
        if paths and any(record.HasField("exit") for record in records_of(paths[-1])):
            break
        assert time.monotonic() < give_up, "wandb does not end"
        time.sleep(0.2)

    rows = []
    for path in paths:
        for record in records_of(path):
            if record.HasField("history"):
                row = {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                rows.append((path.stem.removeprefix("run-"), row))
    return rows


def records_of(path: Path) -> Iterator[Any]:
    """Records of an offline file of wandb: a log of LevelDB, which has a head of 7 bytes here and
    may end early: blocks of 32 KiB with pieces (checksum, length, 1 whole, 2 first, 3 middle, 4 last).
    """
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore

    data = path.read_bytes()
    place, record = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue

        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield Record.FromString(record)
            record = b""
