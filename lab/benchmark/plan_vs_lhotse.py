#!/usr/bin/env python3
"""The plan compared in one run with Lhotse's DynamicBucketingSampler: cost of a step, padding,
fill, number of steps.

Both batch the same lengths, with the same maximum of padded seconds. Lhotse is set up as NeMo does
for data that ranks share: 30 buckets, a buffer of 10,000, shuffled, with world size and rank given
to the sampler of each rank. Its cuts are made on the fly and hold only their duration, which costs
less than any manifest. The clock covers an epoch of one rank, from its start to its last batch. It
excludes Lhotse's estimate of bins, which is done once per training.

    ms/step  time of the epoch of one rank divided by its steps
    first    milliseconds from the start of the epoch to the first batch
    padding  padded seconds without audio, percent of all padded seconds, all ranks
    fill     padded seconds of a batch, percent of the maximum, last steps included
    steps    steps of every rank

Needs lhotse: pip install -r lab/benchmark/requirements.txt
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from provenance import benchmark_parser, commit, settings

from wenet_uio import __version__
from wenet_uio.base.cli import run
from wenet_uio.config.batch import BatchConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.corpus.base import Facts, StoredCorpus
from wenet_uio.dataset.corpus.index import Rows, shard_table, summary_of
from wenet_uio.dataset.plan.epoch_plan import EpochPlan, divide
from wenet_uio.dataset.plan.lanes import Division
from wenet_uio.dataset.plan.measure import measure_of
from wenet_uio.dataset.types import SampleRef, Utterance

if TYPE_CHECKING:
    from lhotse.dataset import DynamicBucketingSampler

WORLD_SIZES = (1, 64)
SAMPLE_RATE = 16000
BUCKETS = 30
BUFFER = 10_000

T = TypeVar("T")
Step = list[np.ndarray]
"""One step of one rank: an array for each pass through the model, with the seconds of its
utterances."""


def lengths(utterances: int) -> np.ndarray:
    """Draw lengths in seconds: lognormal, median 6, sigma 0.6, within 0.5 and 30, rounded to whole
    samples.
    """
    seconds = np.clip(np.random.default_rng(0).lognormal(np.log(6), 0.6, utterances), 0.5, 30)
    return np.round(seconds * SAMPLE_RATE) / SAMPLE_RATE


class IndexOnlyCorpus(StoredCorpus):
    """Shards without audio: utterances of the lengths in `seconds`, `shard_size` in each shard."""

    def __init__(self, seconds: np.ndarray, shard_size: int) -> None:
        total = len(seconds)
        zeros = np.zeros(total, np.uint64)
        self._rows = Rows(
            key_hash=np.random.default_rng(1).integers(0, 2**64, total, dtype=np.uint64),
            num_samples=np.round(seconds * SAMPLE_RATE).astype(np.uint32),
            sample_rate=np.full(total, SAMPLE_RATE, np.uint32),
            text_length=np.full(total, 20, np.uint32),
            **dict.fromkeys(
                ("audio_offset", "audio_size", "text_offset", "text_size", "key_end"), zeros
            ),
            keys=np.empty(0, np.uint8),
        )
        self._shard_size = shard_size
        table = shard_table(self.rows(shard) for shard in range(-(-total // shard_size)))
        super().__init__("synthetic", table, [], summary_of(table), Facts())

    def rows(self, shard: int) -> Rows:
        """Return the samples of a shard."""
        return self._rows.slice(
            shard * self._shard_size, min((shard + 1) * self._shard_size, len(self._rows))
        )

    def read(self, ref: SampleRef) -> Utterance:
        """Fail: planning must not read audio."""
        raise AssertionError("the plan reads no audio")


class Ours:
    """Our EpochPlan with dynamic batches."""

    def __init__(self, seconds: np.ndarray, shard_size: int, batch_duration: float) -> None:
        conf = DatasetConf(
            batch_conf=BatchConf(batch_type="dynamic", batch_duration=batch_duration)
        )
        self.seconds, self.shard_size = seconds, shard_size
        self.corpus = IndexOnlyCorpus(seconds, shard_size)
        self.measure = measure_of(conf, training=True)
        self._plans: dict[Division, EpochPlan] = {}
        """Division -> the first plan, which shares the costs of its shards with later plans."""

    def plan(self, epoch: int, world_size: int) -> EpochPlan:
        """Return the plan of an epoch."""
        division = divide(self.corpus, world_size)
        if division in self._plans:
            return self._plans[division].of_epoch(seed=0, epoch=epoch)

        self._plans[division] = EpochPlan(
            self.corpus, self.measure, seed=0, epoch=epoch, division=division
        )
        return self._plans[division]

    def batches(self, epoch: int, world_size: int, rank: int) -> Iterator[object]:
        """Plan an epoch from its start and yield the batches of one rank."""
        plan = self.plan(epoch, world_size)
        for position in range(0, plan.num_batches, world_size):
            yield plan.step(position, world_size, rank)

    def steps(self, epoch: int, world_size: int) -> list[list[Step]]:
        """Return the steps of every rank."""
        plan = self.plan(epoch, world_size)
        return [
            [
                [
                    self.seconds[piece.shards * self.shard_size + piece.rows]
                    for piece in planned.pieces
                ]
                for planned in (
                    plan.step(at, world_size, rank) for at in range(0, plan.num_batches, world_size)
                )
            ]
            for rank in range(world_size)
        ]


class Lhotse:
    """Lhotse's DynamicBucketingSampler over cuts that are made on the fly."""

    def __init__(self, seconds: np.ndarray, batch_duration: float) -> None:
        from lhotse import CutSet, MonoCut
        from lhotse.dataset import DynamicBucketingSampler

        class Cuts:
            """An iterable that makes new cuts in every iteration."""

            def __iter__(self) -> Iterator[MonoCut]:
                for number, duration in enumerate(seconds.tolist()):
                    yield MonoCut(id=str(number), start=0.0, duration=duration, channel=0)

        self.samplers = {
            world_size: DynamicBucketingSampler(
                CutSet(Cuts()),
                max_duration=batch_duration,
                num_buckets=BUCKETS,
                buffer_size=BUFFER,
                num_cuts_for_bins_estimate=BUFFER,
                shuffle=True,
                drop_last=False,
                seed=0,
                world_size=world_size,
                rank=0,
            )
            for world_size in WORLD_SIZES
        }

    def batches(self, epoch: int, world_size: int, rank: int) -> Iterator[object]:
        """Start the sampler of one rank and return its batches of an epoch."""
        return self._started(epoch, world_size, rank)

    def _started(self, epoch: int, world_size: int, rank: int) -> DynamicBucketingSampler:
        sampler = self.samplers[world_size]
        sampler.rank = rank
        sampler.set_epoch(epoch)
        return iter(sampler)

    def steps(self, epoch: int, world_size: int) -> list[list[Step]]:
        """Return the steps of every rank.

        Every rank builds all batches and keeps its own. Here they are built once, and the sampler
        deals them to each rank.
        """
        sampler = self._started(epoch, world_size, 0)
        built = list(sampler.cuts_iter)
        steps = []
        for rank in range(world_size):
            sampler.rank, sampler.cuts_iter = rank, (batch for batch in built)
            steps.append([[np.array([cut.duration for cut in batch])] for batch in rest(sampler)])

        return steps


def rest(batches: Iterator[T]) -> Iterator[T]:
    """Yield the remaining batches by `next`; `iter` would restart a sampler."""
    while (batch := next(batches, None)) is not None:
        yield batch


def clock(loader: Ours | Lhotse, epoch: int, world_size: int) -> tuple[float, float]:
    """Measure an epoch of the middle rank: milliseconds to its first batch, and mean milliseconds
    of a step.

    The mean includes the start of the epoch.
    """
    began = time.perf_counter()
    batches = loader.batches(epoch, world_size, world_size // 2)
    next(batches)
    first = time.perf_counter() - began
    steps = 1 + sum(1 for _ in rest(batches))

    return 1000 * first, 1000 * (time.perf_counter() - began) / steps


def quality(steps: Sequence[Sequence[Step]], batch_duration: float) -> dict[str, object]:
    """Compute padding, fill and counts of an epoch over all ranks; each pass through the model
    counts as a batch.
    """
    passes = [seconds for rank in steps for step in rank for seconds in step if len(seconds)]
    speech = sum(float(seconds.sum()) for seconds in passes)
    padded = [len(seconds) * float(seconds.max()) for seconds in passes]
    counts = sorted({len(rank) for rank in steps})

    return {
        "padding": round(100 * (1 - speech / sum(padded)), 2),
        "fill": round(100 * sum(padded) / (batch_duration * len(passes)), 1),
        "utterances": sum(map(len, passes)),
        "over_bound": sum(cost > batch_duration + 1e-6 for cost in padded),
        "steps": counts[-1],
        "equal_steps": len(counts) == 1,
    }


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--utterances", type=int, default=50_000, help="utterances (default: %(default)s)"
    )
    parser.add_argument(
        "--shard_size", type=int, default=1000, help="utterances of a shard (default: %(default)s)"
    )
    parser.add_argument(
        "--batch_duration",
        type=float,
        default=300,
        help="largest batch, in padded seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="timed epochs of each (default: %(default)s)"
    )

    return parser.parse_args()


def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Time epochs of both in turn and print the table; return an entry for each number of ranks."""
    seconds = lengths(args.utterances)
    loaders = {
        "ours": Ours(seconds, args.shard_size, args.batch_duration),
        "lhotse": Lhotse(seconds, args.batch_duration),
    }
    times: dict[tuple[int, str], list[tuple[float, float]]] = {}

    for epoch in range(args.repeats):
        for world_size in WORLD_SIZES:
            for name, loader in loaders.items():
                times.setdefault((world_size, name), []).append(clock(loader, epoch, world_size))

    print(
        f"{'ranks':>5} "
        f"{'':<7}{'ms/step':>9}{'first ms':>10}{'padding %':>11}{'fill %':>8}{'utterances':>12}  "
        "steps"
    )
    results: list[dict[str, Any]] = []
    for world_size in WORLD_SIZES:
        results.append({"world_size": world_size})
        for name, loader in loaders.items():
            first, step = (
                round(median(column), 3) for column in zip(*times[world_size, name], strict=True)
            )
            figures = quality(loader.steps(0, world_size), args.batch_duration)
            results[-1][name] = {"ms_per_step": step, "first_batch_ms": first, **figures}
            print(
                f"{world_size:5} "
                f"{name:<7}{step:9.3f}{first:10.1f}{figures['padding']:11.2f}{figures['fill']:8.1f}"
                f"{figures['utterances']:12}  "
                f"{figures['steps']}{'' if figures['equal_steps'] else ' at most'}"
            )

    return results


def main() -> None:
    """Compare the plan with Lhotse's sampler.

    Raises:
        ValueError: lhotse is not installed.
    """
    args = parse_arguments()
    try:
        import lhotse
    except ImportError as error:
        raise ValueError(f"{error}; to compare with Lhotse: pip install lhotse urllib3") from None

    results = compare(args)
    versions = {
        "wenet_uio": __version__,
        "lhotse": lhotse.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    print(
        ", ".join(f"{name} {version}" for name, version in versions.items())
        + f", commit {commit()}"
    )

    if args.json:
        largest = results[-1]
        figures = {
            f"{figure}_{name}": largest[name][figure]
            for figure in ("ms_per_step", "padding")
            for name in ("ours", "lhotse")
        }
        report = {
            **figures,
            **settings(args),
            "by_world_size": results,
            "versions": versions,
            "commit": commit(),
        }
        print(json.dumps(report))


if __name__ == "__main__":
    run(main)
