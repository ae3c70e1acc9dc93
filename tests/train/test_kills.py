"""A run that is killed several times and resumed ends as an undisturbed run; workers that crash
cost their samples.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.audio.crashing import mark
from tests.support.train import killed_run
from tests.support.train.board import series
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.base.files import read_lines
from wenet_uio.dataset.corpus.open_list import open_list

ROOT = Path(__file__).parents[2]
OBSERVED = 3
"""Epochs between two plots, which take longer than the training."""
MORE_STATE = {
    "model_avg": {"interval": 2},
    "cr_loss_scale": 0.2,
    "cr_warmup_steps": 30,
    "dataset_conf": {
        **CONFIG["dataset_conf"],
        "batch_conf": {"batch_type": "static", "batch_size": 8},
    },
}
"""A running average, and two views of each utterance, four utterances a batch."""


def draw_kills(kinds: Collection[str]) -> list[list[object]]:
    """A kill at each kind of event, in random order, at random numbers."""
    drawn = random.Random(1)
    events = list(kinds)
    drawn.shuffle(events)
    writers = {"write", "rename", "report", "pictures"}  # rank 0 writes
    most = {"pictures": 1}  # few epochs have them
    return [
        [0 if event in writers else drawn.randrange(2), event, drawn.randint(1, most.get(event, 4))]
        for event in events
    ]


def run(folder: Path, epochs: int, kills: list[list[object]]) -> dict[str, object]:
    folder.mkdir()
    write_corpus(folder, max_epoch=epochs, log_interval=1, observe_interval=OBSERVED, **MORE_STATE)
    for name, lost in (("train", (2, 9, 17)), ("cv", (3,))):
        open_list(str(folder / f"{name}.list"), "raw")  # indexed before it breaks
        for number in lost:
            (folder / f"{name}{number}.wav").write_bytes(b"")
    (folder / "kills.json").write_text(json.dumps(kills))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = preloaded.run(
        ["-m", "tests.support.train.killed_run", "kills.json"], cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def spoil(folder: Path, how: Callable[[Path], object]) -> Path:
    """Write a corpus, two files of whose training set and one of whose validation set are
    spoilt.
    """
    folder.mkdir()
    write_corpus(folder)
    for name, lost in (("train", (2, 17)), ("cv", (3,))):
        open_list(str(folder / f"{name}.list"), "raw")  # indexed before it breaks
        for number in lost:
            how(folder / f"{name}{number}.wav")
    return folder


def test_samples_that_crash_the_decoder_are_left_out_like_unreadable_samples(
    tmp_path: Path,
) -> None:
    folders = [spoil(tmp_path / "a", mark), spoil(tmp_path / "b", lambda wav: wav.write_bytes(b""))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = preloaded.run(["-m", "tests.support.train.crashing_run", *folders], env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("a data worker crashed (SIGSEGV)") >= 2
    crashing, unreadable = (torch.load(folder / "exp/final.pt") for folder in folders)
    assert all(torch.equal(crashing[name], unreadable[name]) for name in unreadable)
    named = [bad_samples(folder) for folder in folders]
    assert named[0] == named[1]
    assert len(named[0]) == 2 * 2 + 1
    records = [
        yaml.safe_load((folder / "exp/epoch_1.yaml").read_text())["samples"] for folder in folders
    ]
    assert records[0] == records[1]
    assert records[0]["bad"] == {"unreadable": 2}


def bad_samples(folder: Path) -> list[tuple[str, int, str, str]]:
    """List, pass, key and reason of each line of bad_samples.jsonl."""
    lines = read_lines(folder / "exp/bad_samples.jsonl")
    return sorted((line["list"], line["pass"], line["key"], line["reason"]) for line in lines)


@pytest.mark.parametrize(
    ("kinds", "epochs"),
    [
        pytest.param(("update", "write", "rename", "read"), 5, id="some"),
        pytest.param(tuple(killed_run.EVENTS), 8, id="every", marks=pytest.mark.all),
    ],
)
def test_kills_at_any_kind_of_event_change_neither_weights_nor_points(
    kinds: tuple[str, ...], epochs: int, tmp_path: Path
) -> None:
    kills = draw_kills(kinds)
    assert run(tmp_path / "killed", epochs, kills) == {"survived": 0, "complete": True}, kills
    assert run(tmp_path / "undisturbed", epochs, []) == {"survived": 0, "complete": True}
    resumed = (tmp_path / "killed/said").read_text().count("resuming after step")
    assert resumed >= len(kinds) - kinds.count("rename")  # a rename may come before the log line
    for weights in ("final.pt", "running_3.pt", f"running_{epochs - 1}.pt"):
        first, second = (
            torch.load(tmp_path / name / "exp" / weights) for name in ("killed", "undisturbed")
        )
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first), weights
    points = series(tmp_path / "undisturbed/exp/tensorboard")
    assert [step for step, _ in points["train/loss"]] == list(range(1, 3 * epochs + 1))
    ends = [3 * epoch for epoch in range(1, epochs + 1)]
    assert [step for step, _ in points["data/padded_frames"]] == ends
    for tag in (
        "dev/ctc",
        "dev/attention_encoder",
        "dev/attention_decoder",
        "dev/text/text_summary",
    ):
        assert [step for step, _ in points[tag]] == ends[::OBSERVED], tag
    assert series(tmp_path / "killed/exp/tensorboard") == points
    named = bad_samples(tmp_path / "undisturbed")
    assert len(named) == len(set(named)) == epochs * 3 + 1
    assert bad_samples(tmp_path / "killed") == named
    first, second = (
        torch.load(tmp_path / name / f"exp/state_{3 * epochs}.pt")
        for name in ("killed", "undisturbed")
    )
    measured = {"interval": 0, "total": 0, "timing": 0}
    assert {**first["progress"], **measured} == {**second["progress"], **measured}
    assert first["data"] == second["data"]
    torch.testing.assert_close(first["optimizer"], second["optimizer"], rtol=0, atol=0)
