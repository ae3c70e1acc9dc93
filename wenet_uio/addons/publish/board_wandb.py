"""A run of Weights & Biases, on its server or in a folder for `wandb sync`."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from wenet_uio.train.trackers import Entry

STEP = "step"
"""The axis of all curves. Steps of wandb itself would drop what comes out of order."""


class WandbBoard:
    """Writes to a run; wandb's variables choose the server, project and folder.

    Without WANDB_MODE and a key, the run is written to the folder `wandb` of the run.
    """

    def __init__(self, folder: Path, run: str | None, config: Mapping[str, Any]) -> None:
        self._wandb = wandb = import_module("wandb")
        mode = os.environ.get("WANDB_MODE")
        if not mode:
            mode = "online" if wandb.login(prompt=False) else "offline"

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "wenet_uio"),
            dir=os.environ.get("WANDB_DIR", str(folder)),
            id=run,
            resume="allow",
            name=os.environ.get("WANDB_NAME", folder.name),
            config=dict(config),
            mode=mode,
            settings=wandb.Settings(console="off", silent=True),
        )
        self.run = self._run.id
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def write(self, entry: Entry) -> None:
        """Send an entry as a row of the history."""
        row: dict[str, Any] = dict(entry.scalars)
        row |= {name: self._wandb.Image(picture) for name, picture in entry.pictures.items()}
        row |= {
            name: self._wandb.Html(f"<pre>{html.escape(text)}</pre>")
            for name, text in entry.texts.items()
        }
        row |= {
            name: self._wandb.Audio(samples, sample_rate=rate)
            for name, (samples, rate) in entry.audio.items()
        }
        self._run.log(row | {STEP: entry.step})

    def close(self, *, complete: bool) -> None:
        """End this part of the run, and wait for the process of wandb that writes it."""
        exit_code = 0 if complete else 1
        self._run.finish(exit_code=exit_code)
        self._wandb.teardown()
