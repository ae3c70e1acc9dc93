"""Walk the road of a cell from its first command to its last file, and hold its law on the way."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
import yaml

import wenet_uio
from tests.support import preloaded
from tests.support.ends.cells import GREEN, WITH_ONNX, Cell
from tests.support.ends.columns import BASE, joined
from tests.support.ends.events import NONE, OUT_OF_MEMORY
from tests.support.ends.rows import ROWS, Data
from tests.support.ends.spoken import CV, write_units
from tests.support.ends.trained import TrainedRun, call
from tests.support.train.board import series
from wenet_uio.base.files import read_lines
from wenet_uio.bin import export_jit, export_onnx
from wenet_uio.config.encoder_kind import encoder_kind
from wenet_uio.export.command import check_exportable
from wenet_uio.models.speech_model import SpeechModel

ROOT = Path(__file__).parents[3]
EPOCHS = 2
FINE_TUNED = ("dataset_conf", "scheduler_conf", "max_epoch", "dtype", "log_interval")
"""Keys of a training that starts from a trained model."""


def walk(cell: Cell, folder: Path) -> str:
    """Walk a road in an empty folder.

    Returns:
        GREEN, or `cannot, because` with the reason that training states.
    """
    road = Road(cell, folder, ROWS[cell.row].write(folder / "data"))
    road.write_config()
    if cell.training.starts_from:
        assert road.train("base", event=NONE).status == 0

    quiet = road.train("quiet")
    if quiet.status:
        reason = quiet.said.splitlines()[-1]
        assert reason.startswith("error: "), quiet.said
        assert not (folder / "quiet/init.pt").exists(), "refused after training began"
        return f"cannot, because {reason.removeprefix('error: ')}"

    road.check_run("quiet")
    road.stop_and_resume()
    road.check_run("exp")
    if cell.event != OUT_OF_MEMORY:
        road.check_same_bits()

    trained = road.run("exp")
    trained.average(EPOCHS)
    trained.recognise(CV)
    road.export()
    if cell in WITH_ONNX:
        road.export_to_onnx()
    road.transcribe()
    return GREEN


@dataclass
class Run:
    """The end of a training command."""

    status: int
    said: str


@dataclass
class Road:
    """The commands of a cell."""

    cell: Cell
    folder: Path
    data: Data

    def write_config(self) -> None:
        column = self.cell.training
        write_units(self.folder / "units.txt")
        if column.prepare:
            column.prepare(self.folder)

        keys = joined(BASE, self.data.keys, column.keys)
        self.keys = keys
        (self.folder / "base.yaml").write_text(yaml.safe_dump(keys))
        if column.starts_from:
            keys = {name: keys[name] for name in FINE_TUNED if name in keys}
            keys["dataset_conf"] = {"batch_conf": keys["dataset_conf"]["batch_conf"]}
        (self.folder / "train.yaml").write_text(yaml.safe_dump(keys))

    @property
    def trusts_code(self) -> bool:
        """Whether commands load a model with code of the user."""
        return ":" in self.keys.get("model", "") or "operators" in self.keys["dataset_conf"]

    def run(self, name: str) -> TrainedRun:
        return TrainedRun(self.folder / name, self.data.cv, self.data.data_type, self.trusts_code)

    def train(self, run: str, *, event: str | None = None, stop: str = "none") -> Run:
        """Run train.py with the event of the cell."""
        column = self.cell.training
        starts = column.starts_from and run != "base"
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={column.ranks}"]
        done = preloaded.run(
            [
                *(launch if column.ranks > 1 else []),
                ROOT / "tests/support/ends/disturbed_train.py",
                *(event or self.cell.event, stop),
                *("--config", "train.yaml" if run != "base" else "base.yaml"),
                *("--train_data", self.data.train, "--cv_data", self.data.cv),
                *("--data_type", self.data.data_type, "--model_dir", run, "--device", "cpu"),
                *(["--from", "base"] if starts else []),
                *column.options,
            ],
            cwd=self.folder,
        )
        if stop == "none":
            assert "Traceback" not in done.stderr, done.stderr
        return Run(done.returncode, done.stderr)

    def stop_and_resume(self) -> None:
        """Stop the run `exp` in the middle of its second epoch, and resume it."""
        steps = self.run("quiet").record(0)["step"]
        middle = steps + max(1, steps // 2)
        signal = ("SIGTERM", "SIGKILL")[zlib.crc32(str(self.cell).encode()) % 2]
        stopped = self.train("exp", stop=f"{signal}:{middle}")
        assert not (self.folder / "exp/final.pt").exists(), stopped.said

        # TensorBoard sorts files by the second of their start.
        time.sleep(1 - time.time() % 1)
        resumed = self.train("exp")
        assert resumed.status == 0, resumed.said
        assert "resuming after step" in resumed.said

    def check_run(self, run: str) -> None:
        """Check that a run has every file, finite results, and each planned utterance."""
        trained = self.run(run)
        trained.check(EPOCHS)
        ledger = read_lines(self.folder / run / "bad_samples.jsonl")
        for epoch in range(EPOCHS):
            samples = trained.record(epoch)["samples"]
            assert samples["all"] == self.data.utterances
            left_out = sum(samples["filtered"].values()) + sum(samples["bad"].values())
            assert samples["read"] + left_out == samples["all"]
            named = [line for line in ledger if line["pass"] == epoch]
            assert len(named) >= sum(samples["bad"].values())

    def check_same_bits(self) -> None:
        """Check that the resumed run has the weights and the points of the quiet one."""
        for name in (*(f"epoch_{epoch}" for epoch in range(EPOCHS)), "final"):
            quiet, resumed = (self.run(run).weights(name) for run in ("quiet", "exp"))
            assert quiet.keys() == resumed.keys()
            unlike = [key for key in quiet if not torch.equal(quiet[key], resumed[key])]
            assert unlike == [], name

        quiet_points, points = (
            series(self.folder / run / "tensorboard") for run in ("quiet", "exp")
        )
        # Text, because the norm of a gradient that is not finite may be nan.
        assert repr(points) == repr(quiet_points)

    def export(self) -> None:
        """Export for WeNet's runtime, unless the family or the encoder says why that cannot be."""
        if obstacle_of(self.run("exp").model()):
            return

        self.call_export(export_jit, "--output_file", self.folder / "exp/final.zip")
        assert (self.folder / "exp/final.zip").stat().st_size > 0

    def export_to_onnx(self) -> None:
        """Export for WeNet's runtime and sherpa-onnx, or for sherpa-onnx alone."""
        model, config = self.run("exp").model(), self.run("exp").config()
        if obstacle_of(model) and not (
            model.family.exchange.sherpa or encoder_kind(config.encoder).sherpa
        ):
            return

        folder = self.folder / "exp/onnx"
        self.call_export(export_onnx, "--output_dir", folder, "--int8_tolerance", 100)
        assert any(folder.glob("offline/*.onnx"))

    def call_export(self, tool: ModuleType, *options: object) -> None:
        check = ("--check_data", self.data.cv, "--data_type", self.data.data_type)
        call(tool, *self.run("exp").model_options(), *check, "--num_check", 2, *options)

    def transcribe(self) -> None:
        """Transcribe a recording; a model of stored features does so with features of its config."""
        recogniser = wenet_uio.load_model(
            self.folder / "exp", device="cpu", trust_code=self.trusts_code
        )
        recording = next((self.folder / "data").rglob("cv*.wav"))
        assert isinstance(recogniser.transcribe(recording).text, str)


def obstacle_of(model: SpeechModel) -> str:
    """Return why WeNet's runtime does not run a model; empty if it does."""
    try:
        check_exportable(model)
    except ValueError as error:
        return str(error)
    return ""
