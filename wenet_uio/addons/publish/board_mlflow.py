"""A run of MLflow, on its server or in a data base in the folder of the run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import soundfile
import yaml

from wenet_uio.train.trackers import Entry

NEW = "new-"
"""Begins the name of a run that may not have been made yet; numbers of MLflow begin otherwise."""
TAG = "wenet_uio.run"
"""Tag with this name. The server chooses the number of a run; where a kill loses it, the tag finds
the run."""


class MlflowBoard:
    """Writes to a run; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME choose where.

    Without the first one, the run is written to mlflow.db and mlflow/ of the folder of the run.
    """

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        self._mlflow = import_module("mlflow")
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        artifacts = None if uri else (folder.absolute() / "mlflow").as_uri()
        self._client = self._mlflow.MlflowClient(uri or f"sqlite:///{folder.absolute()}/mlflow.db")
        self.run = run
        if run.startswith(NEW):
            self.run = self._new_run(folder.name, run, self._experiment_id(artifacts))
            text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
            self._client.log_text(self.run, text, "train.yaml")
        self._client.update_run(self.run, status="RUNNING")

    def _new_run(self, name: str, tag: str, experiment: str) -> str:
        """Return the number of the run with a tag, which is made if a killed start has made none."""
        for run in self._client.search_runs([experiment], f"tags.`{TAG}` = '{tag}'"):
            return run.info.run_id
        made = self._client.create_run(experiment, run_name=name, tags={TAG: tag})
        return made.info.run_id

    def _experiment_id(self, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "wenet_uio")
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment.experiment_id
        return self._client.create_experiment(name, artifact_location=artifacts)

    def write(self, entry: Entry) -> None:
        """Send an entry: metrics with their step; pictures, texts and audio as files."""
        milliseconds = int(time.time() * 1000)
        metrics = [
            self._mlflow.entities.Metric(name, value, milliseconds, entry.step)
            for name, value in entry.scalars.items()
        ]
        if metrics:
            self._client.log_batch(self.run, metrics=metrics)
        for name, picture in entry.pictures.items():
            self._client.log_image(self.run, picture, f"{name}/{entry.step}.png")
        for name, text in entry.texts.items():
            self._client.log_text(self.run, text, f"{name}/{entry.step}.txt")
        for name, (samples, rate) in entry.audio.items():
            with TemporaryDirectory() as folder:
                path = Path(folder, f"{entry.step}.wav")
                soundfile.write(path, samples, rate)
                self._client.log_artifact(self.run, str(path), name)

    def close(self, *, complete: bool) -> None:
        """End this part of the run."""
        state = "FINISHED" if complete else "KILLED"
        self._client.set_terminated(self.run, state)
