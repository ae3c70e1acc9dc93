"""A training that a document asks for: it is stopped and resumed, and its run is used."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.ends.columns import ENCODER, SMALL
from tests.support.ends.trained import TrainedRun

ROOT = Path(__file__).parents[3]
RANKS = pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=pytest.mark.all), 2, pytest.param(3, marks=pytest.mark.all)]
)
"""Two ranks in every change."""
MODEL = {
    "encoder": "conformer",
    "encoder_conf": ENCODER,
    "decoder": "transformer",
    "decoder_conf": SMALL,
    "scheduler_conf": {"warmup_steps": 20},
}
"""A small model, because documents of a data layer leave the model open."""


def walk(options: Sequence[str], *, ranks: int, stop: int = 2) -> tuple[list[list[str]], str]:
    """Train the run `exp` in the current folder: stop soon after step `stop` begins, and resume.

    Returns:
        Utterances of each step, those of all ranks; what the resumed run says.
    """
    stopped, _ = train(options, f"SIGTERM:{stop}", ranks)
    assert "SIGTERM received: state saved after step" in stopped, stopped
    assert not Path("exp/final.pt").exists(), stopped

    resumed, status = train(options, "none", ranks)
    assert status == 0, resumed
    assert "resuming after step" in resumed
    return _noted_steps(ranks), resumed


def train(options: Sequence[str], stop: str, ranks: int) -> tuple[str, int]:
    """Run train.py -> what it says, and its status."""
    launch = ["-m", "wenet_uio.bin.launch", "--standalone", f"--nproc_per_node={ranks}"]
    command = [
        *(launch if ranks > 1 else []),
        *(ROOT / "tests/support/recipes/noted_train.py", stop),
        *("--model_dir", "exp", "--device", "cpu", *options),
    ]
    done = preloaded.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr, done.returncode


def _noted_steps(ranks: int) -> list[list[str]]:
    """Return the utterances of each step; a step that was repeated has the same ones."""
    of_ranks: dict[tuple[int, int], list[str]] = {}
    for line in Path("steps.jsonl").read_text().splitlines():
        number, rank, keys = json.loads(line)
        assert of_ranks.setdefault((number, rank), keys) == keys

    last = max(number for number, _ in of_ranks)
    assert len(of_ranks) == last * ranks, "a rank has other steps"
    return [
        [key for rank in range(ranks) for key in of_ranks[number, rank]]
        for number in range(1, last + 1)
    ]


def use(
    run: TrainedRun, epochs: int, steps: Sequence[Sequence[str]], utterances: int
) -> list[Counter[str]]:
    """Check a run, average its epochs, and recognise its test set of so many utterances.

    Returns:
        Times that each epoch has read an utterance.
    """
    run.check(epochs)
    read, first = [], 0
    for epoch in range(epochs):
        record = run.record(epoch)
        read.append(Counter(key for step in steps[first : record["step"]] for key in step))
        first = record["step"]

        samples = record["samples"]
        left_out = sum(samples["filtered"].values()) + sum(samples["bad"].values())
        assert read[-1].total() == samples["read"] == samples["all"] - left_out

    assert first == len(steps)
    run.average(epochs)
    run.recognise(utterances)
    return read


def check_passes(read: Sequence[Counter[str]], keys: set[str]) -> None:
    """Check that nominal epochs go over the utterances pass by pass."""
    times: Counter[str] = Counter()
    for epoch in read:
        times += epoch
    assert set(times) == keys
    assert max(times.values()) - min(times.values()) <= 1
