"""The folder of a run.

train.yaml            the config, complete
init.pt               weights that the run started from
epoch_N.pt, .yaml     weights after epoch N (from 0), and what was measured of them
state_S.pt            all that is needed to go on after optimizer step S; the newest two are kept
final.pt              link to the last epoch, once the run is complete
environment.yaml      what each start of the run ran on, and how long its utterances were
bad_samples.jsonl     every bad sample that was met, and why
too_large.jsonl       batches that memory did not suffice for, and from which step on such are split
tensorboard/          curves and pictures
report.html           all of it in one page, once the run is complete
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from wenet_uio.config import Config, save_config
from wenet_uio.files import written_aside
from wenet_uio.models.weights import first_sentence

KEPT_STATES = 2
"""The second is there for the disk that loses the first."""
ENVIRONMENT, LEDGER, TOO_LARGE = "environment.yaml", "bad_samples.jsonl", "too_large.jsonl"

log = logging.getLogger(__name__)


class RunFolder:
    """What a run leaves on disk. Every file is whole or not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def open(self, config: Config, *, resumed: bool) -> None:
        """Make the folder and write train.yaml; what a run before this one noted there is removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in () if resumed else (ENVIRONMENT, LEDGER, TOO_LARGE):
            (self.path / name).unlink(missing_ok=True)
        for left_over in self.path.glob(".*.tmp"):
            left_over.unlink()
        save_config(config, self.path / "train.yaml")

    def note_start(self, environment: Mapping[str, Any]) -> None:
        """Add a start of the run to environment.yaml."""
        path = self.path / ENVIRONMENT
        starts = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
        with written_aside(path, "w") as file:
            yaml.safe_dump([*starts, dict(environment)], file, sort_keys=False)

    def refuse_strangers(self) -> None:
        """A new run does not mix its epochs with those of another.

        Raises:
            ValueError: there are weights here, and no state that they came from.
        """
        strangers = sorted(path.name for path in self.path.glob("epoch_*.pt"))
        if strangers:
            raise ValueError(
                f"{self.path}: holds {strangers[0]} of a run without a state to resume from; "
                "give another --model_dir, or move its epoch_* away"
            )

    def save_weights(self, name: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Write `name`.pt, a plain state dict."""
        with written_aside(self.path / f"{name}.pt") as file:
            torch.save(dict(weights), file)

    def save_epoch(self, epoch: int, weights: Mapping[str, torch.Tensor], measured: Mapping[str, Any]) -> None:
        """Write weights and yaml of one epoch."""
        tag = f"epoch_{epoch}"
        self.save_weights(tag, weights)
        record = {"epoch": epoch, **measured, "tag": tag, "save_time": time.strftime("%Y-%m-%d %H:%M:%S")}
        with written_aside(self.path / f"{tag}.yaml", "w") as file:
            yaml.safe_dump(record, file, sort_keys=False)

    def save_state(self, step: int, state: Mapping[str, Any]) -> None:
        """Write state_S.pt and drop all but the newest."""
        with written_aside(self.path / f"state_{step}.pt") as file:
            torch.save(dict(state), file)
        for path in self._states()[KEPT_STATES:]:
            path.unlink()

    def newest_state(self) -> dict[str, Any] | None:
        """The newest state that is whole; None at the start of a run.

        Raises:
            ValueError: there are states, and none can be read.
        """
        states = self._states()
        for path in states:
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:
                # torch raises RuntimeError, UnpicklingError, EOFError and more for what is not a whole file.
                log.warning("%s cannot be read and is passed over: %s", path, first_sentence(error))
        if states:
            raise ValueError(f"{self.path}: no state_*.pt can be read; delete them and epoch_* to start anew")
        return None

    def keep(self, last: int | None, best: int) -> None:
        """Delete the weights of all epochs but the `last` newest (None: all) and the `best` with the lowest loss."""
        if last is None:
            return
        measured = self._epochs()
        newest = sorted(measured, reverse=True)[:last]
        lowest = sorted(measured, key=lambda epoch: (math.isnan(measured[epoch]), measured[epoch]))[:best]
        final = Path(os.path.realpath(self.path / "final.pt")).name
        for epoch in set(measured) - set(newest) - set(lowest):
            if final != f"epoch_{epoch}.pt":
                (self.path / f"epoch_{epoch}.yaml").unlink()
                (self.path / f"epoch_{epoch}.pt").unlink(missing_ok=True)

    def finish(self, epoch: int) -> None:
        """Point final.pt at the weights of `epoch`."""
        aside = self.path / ".final.pt.tmp"
        aside.unlink(missing_ok=True)
        aside.symlink_to(f"epoch_{epoch}.pt")
        os.replace(aside, self.path / "final.pt")

    def _states(self) -> list[Path]:
        """Newest first."""
        return [path for _, path in sorted(numbered(self.path, "state_*.pt"), reverse=True)]

    def _epochs(self) -> dict[int, float]:
        """Validation loss of the epochs that are here."""
        records = ((epoch, path) for epoch, path in numbered(self.path, "epoch_*.yaml"))
        return {epoch: yaml.safe_load(path.read_text(encoding="utf-8"))["loss_dict"]["loss"] for epoch, path in records}


def numbered(folder: Path, pattern: str) -> list[tuple[int, Path]]:
    """Files whose names are `pattern` with a number for its star."""
    name = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)"))
    matches = ((name.fullmatch(path.name), path) for path in folder.glob(pattern))
    return [(int(match[1]), path) for match, path in matches if match]


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What changed between two dumped configs, one `path: old -> new` each."""
    found: list[str] = []
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key}: {old} -> {new}")
    return found
