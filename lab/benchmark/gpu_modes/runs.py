"""Runs of train.py on made-up audio, for the modes train and ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from corpus import write_audio

from gpu_modes.recipes import STREAMING, recipe, units_of
from gpu_modes.report import Report
from wenet_uio.base.files import read_lines
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list
from wenet_uio.prepare.sharding import ShardOptions

TRAINING = Path(__file__).parents[1] / "gpu_training.py"
HEAD, LAST = ["<blank>", "<unk>", "a", "b", "c"], "<sos/eos>"
LONG_EPOCH = 10**6
"""Optimizer steps of an epoch: runs end before it does."""
PATIENCE = 300
"""Seconds that a run may take beyond its own time."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: int
    """Exit status."""
    points: list[dict[str, Any]]
    """Figures every `log_interval` steps."""
    said: str
    """Last line of its log."""


@contextmanager
def corpus_folder(report: Report, utterances: int) -> Iterator[Path]:
    """A folder with noise of 1 to 16 s, raw.list, shard.list, units.txt, and train.yaml of the
    recipe.
    """
    with tempfile.TemporaryDirectory(dir=report.options.folder) as name:
        folder = Path(name)
        lines = write_audio(folder / "wav", utterances, scale=report.sized(1.0, 0.1))
        make_raw_list(lines, str(folder / "raw.list"))
        make_shard_list(
            lines,
            folder / "shards",
            str(folder / "shard.list"),
            ShardOptions(per_shard=utterances // 4),
        )
        units = [
            *HEAD,
            *(f"unit{number}" for number in range(units_of(report) - len(HEAD) - 1)),
            LAST,
        ]
        (folder / "units.txt").write_text(
            "".join(f"{unit} {number}\n" for number, unit in enumerate(units))
        )
        of_corpus = {
            "tokenizer": "char",
            "tokenizer_conf": {"symbol_table_path": str(folder / "units.txt")},
        }
        of_run = {"epoch_steps": LONG_EPOCH, "observe_interval": 0}
        (folder / "train.yaml").write_text(
            yaml.safe_dump({**recipe(report, STREAMING), **of_corpus, **of_run})
        )
        yield folder


def train(
    report: Report,
    folder: Path,
    name: str,
    settings: Mapping[str, Any],
    options: Sequence[str],
    ranks: int = 1,
) -> Outcome:
    """Run train.py once with exp_NAME as its folder.

    Args:
        settings: fields of gpu_training.Settings except `points`.
        options: of train.py.

    Raises:
        TimeoutExpired: the run did not stop in time and was killed.
    """
    points = folder / f"{name}.jsonl"
    launcher = (
        []
        if ranks == 1
        else ["-m", "wenet_uio.bin.launch", "--standalone", f"--nproc_per_node={ranks}"]
    )
    command = [
        sys.executable,
        *launcher,
        str(TRAINING),
        json.dumps({"points": str(points), **settings}),
    ]
    command += ["--config", str(folder / "train.yaml"), "--model_dir", str(folder / f"exp_{name}")]
    command += ["--device", str(report.device), *options]
    log = folder / f"{name}.log"
    with open(log, "w") as file:
        limit = PATIENCE + settings.get("stop_after", 0)
        status = subprocess.run(command, stdout=file, stderr=file, timeout=limit).returncode

    lines = log.read_text(errors="replace").splitlines() or ["nothing"]
    return Outcome(status, read_lines(points), lines[-1])


def data_options(folder: Path, data_type: str) -> list[str]:
    """Return options of train.py for a list of the corpus. Runs end before they validate, so that
    the list serves for both.
    """
    data_list = str(folder / f"{data_type}.list")
    return ["--train_data", data_list, "--cv_data", data_list, "--data_type", data_type]


def completed(outcome: Outcome) -> Outcome:
    """Return the outcome.

    Raises:
        RuntimeError: the run failed.
    """
    if outcome.status:
        raise RuntimeError(f"train.py ended with status {outcome.status}: {outcome.said}")
    return outcome
