"""What only shows a training never ends it: its weights, records and states are there."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support import preloaded
from tests.support.data.tars import write_tar
from tests.support.train.training_corpus import write_corpus
from wenet_uio.base.messages import said_once
from wenet_uio.dataset.ledger import Account
from wenet_uio.train.observation import Observation
from wenet_uio.train.report import Reporter

ROOT = Path(__file__).parents[2]
DEFAULTS = {"observe_interval": 1, "report": True}
SCALARS = {"loss": 2.5, "lr": 0.001, "audio_seconds_per_second": 80.0, "data_wait": 0.25}
ATTENTION = {"encoder": np.full((2, 9, 9), 1 / 9, np.float32)}


def train(folder: Path, *options: str) -> str:
    """Train two epochs, which must succeed -> standard error."""
    command = ["--config", "train.yaml", "--cv_data", "cv.list", "--train_data", "train.list"]
    done = preloaded.run(
        [ROOT / "wenet_uio/bin/train.py", *command, "--model_dir", "exp", *options], cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert {"epoch_0.pt", "epoch_1.yaml", "final.pt", "state_12.pt"} <= set(
        os.listdir(folder / "exp")
    )
    return done.stderr


def store_features(folder: Path, *, packed: bool) -> None:
    """Replace the lists by lists of stored features: files, or tars in the form of CAT."""
    random = np.random.default_rng(1)
    for name in ("train", "cv"):
        path = folder / f"{name}.list"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        members, stated = [], []
        for line in lines:
            file = io.BytesIO()
            np.save(file, random.normal(size=(40, 23)).astype(np.float32))
            (folder / f"{line['key']}.npy").write_bytes(file.getvalue())
            stated.append({"key": line["key"], "feats": f"{line['key']}.npy", "txt": line["txt"]})
            members += [
                (f"{line['key']}.mat.npy", file.getvalue()),
                (f"{line['key']}.label.txt", line["txt"].encode()),
            ]
        if packed:
            write_tar(folder / f"{name}.tar", members)
            path.write_text(f"{folder / name}.tar\n")
        else:
            path.write_text("".join(json.dumps(line) + "\n" for line in stated))


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_stored_features_are_trained_on_with_pictures_and_without_audio(
    data_type: str, tmp_path: Path
) -> None:
    folder = write_corpus(tmp_path, **DEFAULTS)
    store_features(folder, packed=data_type == "shard")
    said = train(folder, "--data_type", data_type)
    assert "no dev/audio in TensorBoard: cv0 has no audio" in said
    assert "left out" not in said
    page = (folder / "exp/report.html").read_text()
    assert 'alt="attention encoder"' in page


def test_points_report_and_card_that_cannot_be_written_are_warnings(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path, **DEFAULTS)
    for name in ("report.html", "README.md"):
        (folder / "exp" / name).mkdir(parents=True)
    (folder / "exp/tensorboard").write_text("a file where a folder should be")
    said = train(folder)
    shown = {
        "points of TensorBoard": "tensorboard",
        "report": "report.html",
        "model card": "README.md",
    }
    for what, name in shown.items():
        (line,) = (line for line in said.splitlines() if f"{what} left out" in line)
        assert "training goes on: " in line
        assert line.endswith(f"'exp/{name}'")


@pytest.mark.filterwarnings("ignore:Exception in thread")  # of TensorBoard
def test_a_disk_that_is_full_costs_points_and_pictures_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said_once.clear()
    reporter = Reporter(True, tmp_path, max_epoch=1)
    reporter.open(1, None)
    fill_up(tmp_path)
    reporter.begin_epoch(0, 0, 2)
    for step in (1, 2):
        reporter.step()
        reporter.interval(step, SCALARS)

    reporter.end_epoch(2, SCALARS, SCALARS, Account(2, 2, {}, {}), {40: 1})
    reporter.write_observation(
        2, Observation("a", "one", ATTENTION, None, ()), (np.zeros(80), 8000)
    )
    assert reporter.mark()["lengths"]
    reporter.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings
    assert all("training goes on: OSError: [Errno 28] No space left" in line for line in warnings)


def fill_up(folder: Path) -> None:
    """Let the event file, which its writer opens for each event, be on a full disk."""
    (events,) = folder.iterdir()
    events.unlink()
    events.symlink_to("/dev/full")
