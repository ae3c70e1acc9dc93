"""A run after its training: its files, and the commands that average it, recognise and score."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import yaml

from tests.support.train.board import series
from wenet_uio.bin import average_model, compute_wer, recognize
from wenet_uio.config import Config, load_config
from wenet_uio.models import build_model
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.search.modes import possible_modes

PROMISED = ("train.yaml", "init.pt", "final.pt", "environment.yaml", "report.html")
PROMISED += ("README.md", "tensorboard")
"""Files of a complete run, beside those of its epochs."""


@dataclass(frozen=True)
class TrainedRun:
    """The folder of a run, and the test set of its user."""

    folder: Path
    test_data: str
    data_type: str = "raw"
    trusts_code: bool = False
    """Whether the model has code of the user."""

    def record(self, epoch: int) -> dict[str, Any]:
        return yaml.safe_load((self.folder / f"epoch_{epoch}.yaml").read_text())

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        return torch.load(self.folder / f"{name}.pt", weights_only=True)

    def config(self) -> Config:
        return load_config(self.folder / "train.yaml", trust_code=self.trusts_code)

    def model(self) -> SpeechModel:
        """Return a model like that of the run, with random weights."""
        return build_model(self.config())

    def check(self, epochs: int) -> None:
        """Check that every file is there, and that weights and validation are finite."""
        of_epochs = [f"epoch_{epoch}.{kind}" for epoch in range(epochs) for kind in ("pt", "yaml")]
        missing = [name for name in (*PROMISED, *of_epochs) if not (self.folder / name).exists()]
        assert missing == []

        for epoch in range(epochs):
            for name, weight in self.weights(f"epoch_{epoch}").items():
                assert torch.isfinite(weight).all(), f"{self.folder}: epoch {epoch}: {name}"
            losses = self.record(epoch)["loss_dict"]
            assert all(torch.isfinite(torch.tensor(loss)) for loss in losses.values()), losses

        assert series(self.folder / "tensorboard")["cv/loss"]

    def average(self, epochs: int) -> None:
        """Average the best epochs into avg.pt."""
        options = ("--src_path", self.folder, "--num", epochs, "--val_best")
        call(average_model, "--dst_model", self.folder / "avg.pt", *options)
        assert all(torch.isfinite(weight).all() for weight in self.weights("avg").values())

    def model_options(self) -> tuple[object, ...]:
        """Options of a command that name the averaged model."""
        trust = ["--trust_code"] if self.trusts_code else []
        files = ("--config", self.folder / "train.yaml", "--checkpoint", self.folder / "avg.pt")
        return (*files, *trust)

    def recognise(self, utterances: int) -> None:
        """Recognise the test set, which has so many utterances, with every mode, and score each."""
        modes = possible_modes(self.model())
        results = self.folder / "test"
        data = ("--test_data", self.test_data, "--data_type", self.data_type)
        options = ("--modes", *modes, "--result_dir", results, "--beam_size", 3, "--device", "cpu")
        call(recognize, *self.model_options(), *data, *options)

        lines = (results / modes[0] / "text").read_text(encoding="utf-8").splitlines()
        keys = [line.split()[0] for line in lines]
        assert len(keys) == utterances
        reference = results / "text"
        reference.write_text("".join(f"{key} ab\n" for key in keys))
        for mode in modes:
            scored = call(compute_wer, "--char=1", "--v=0", reference, results / mode / "text")
            assert "Overall -> " in scored


def call(tool: ModuleType, *options: object) -> str:
    """Run a command in this process -> its output."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        tool.main([*map(str, options)])

    assert "Traceback" not in printed.getvalue()
    return printed.getvalue()
