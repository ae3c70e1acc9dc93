"""Measure where the time of a batch goes, step by step, in one process; advise what to change."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch

from wenet_uio.dataset.kinds.kind import Chains
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.reader import BatchReader
from wenet_uio.dataset.types import (
    Batch,
    BatchOperator,
    Example,
    Operator,
    SampleRef,
    SkipSample,
    Utterance,
)

Item = TypeVar("Item")

PLAN = "plan"
READ = "read"
DECODE = "decode"
PAD = "pad and the rest"
DEVICE = "features on the device"
"""The steps that are not operators of the chain. The steps of operators have the names of their
classes."""
FEATURES_ADVICE = "with a GPU, `feature_device: accelerator` takes the features off the workers"
ADVICE = {
    PLAN: (0.2, "batches are small: raise max_frames_in_batch or batch_size if memory allows"),
    READ: (
        0.25,
        "storage is slow: pack shards (make_shard_list.py) on a local disk, or set WENET_UIO_CACHE "
        "to one",
    ),
    DECODE: (
        0.3,
        "pack 16-bit wav (make_shard_list.py --audio_format wav) if there is room: it needs no "
        "decoding",
    ),
    "Resample": (0.1, "pack audio at resample_rate (make_shard_list.py --resample HZ)"),
    "SpeedPerturb": (0.3, "use fewer speeds in speed_perturb_conf, or more workers"),
    "Tokenize": (0.2, "texts are long: use a tokenizer with a smaller model, or more workers"),
    "ComputeFbank": (0.5, FEATURES_ADVICE),
    "ComputeMfcc": (0.5, FEATURES_ADVICE),
    "ComputeLogMelSpectrogram": (0.5, FEATURES_ADVICE),
    "UserOperator": (0.3, "your own operators are slow: reduce their work for each utterance"),
    PAD: (
        0.3,
        "many short utterances: this work is per utterance, whatever its length; use more workers",
    ),
}
"""For each step: the share of the time from which a change is worthwhile, and the change."""
MUCH_PADDING = 0.05
"""The advice mentions padding above this share of the frames."""


@dataclass(frozen=True)
class Profile:
    """Times of some batches, read by one process."""

    batches: int
    audio_seconds: float
    padding: float
    """Share of the frames that are padding."""
    first_batch_seconds: float
    """Time from opening the data list to the first batch; `seconds` does not include it."""
    seconds: dict[str, float]
    """Time of each step, in the order of the chain."""

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return sum(self.seconds.values())

    @property
    def speed(self) -> float:
        """Audio seconds per second of one process."""
        return self.audio_seconds / self.total

    def workers_for(self, speed: float) -> int:
        """Return the number of workers that read `speed` audio seconds per second."""
        return math.ceil(speed / self.speed)

    def advice(self) -> list[str]:
        """List worthwhile changes, the step with the largest share first."""
        lines = []
        steps = sorted(self.seconds, key=self.seconds.__getitem__, reverse=True)
        for step in steps:
            # The step of an operator of the user is named `UserOperator: module:name`.
            operator = step.partition(":")[0]
            least_share, change = ADVICE.get(operator, (1.0, ""))
            seconds = self.seconds[step]
            if seconds >= least_share * self.total:
                lines.append(f"{step} takes {seconds / self.total:.0%}: {change}")

        if self.padding > MUCH_PADDING:
            lines.append(f"{self.padding:.0%} of the frames are padding: see plan_report.py")

        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return the profile as JSON-able values."""
        return {
            "batches": self.batches,
            "audio_seconds": round(self.audio_seconds, 1),
            "audio_seconds_per_second": round(self.speed, 1),
            "first_batch_seconds": round(self.first_batch_seconds, 3),
            "padding": round(self.padding, 4),
            "ms_per_batch": {
                step: round(1000 * seconds / self.batches, 3)
                for step, seconds in self.seconds.items()
            },
            "share": {
                step: round(seconds / self.total, 4) for step, seconds in self.seconds.items()
            },
            "advice": self.advice(),
        }

    def lines(self) -> Iterator[str]:
        """Yield the profile as text: a table of the steps, then totals."""
        yield f"{'':<28}{'ms a batch':>11}{'share':>8}"
        for step, seconds in self.seconds.items():
            yield f"{step:<28}{1000 * seconds / self.batches:11.2f}{seconds / self.total:8.1%}"

        yield (
            f"{self.batches} batches, {self.audio_seconds / 3600:.2f} hours: {self.speed:.0f} "
            f"audio seconds per second in one process; {self.padding:.1%} padding; first batch "
            f"after {self.first_batch_seconds:.2f} s"
        )


def profile(make_loader: Callable[[], Loader], batches: int, device: str = "cpu") -> Profile:
    """Read the first batches of an epoch, after one batch that warms up, and time every step.

    Args:
        make_loader: opens the data, without workers.
        batches: number of batches to read at most.
        device: computes the features if the loader defers them.

    Raises:
        ValueError: the data has fewer than two batches.
    """
    began = time.perf_counter()
    loader = make_loader()
    planned = (work for _, work in loader.cursor.upcoming())
    first_work = next(planned, None)
    if first_work is None:
        raise ValueError(f"{loader.corpus.data_list}: no batch to read")

    assert isinstance(loader.reader, BatchReader)
    loader.reader[first_work].to(device)
    first_batch_seconds = time.perf_counter() - began

    clock = _Clock({PLAN: 0.0, READ: 0.0, DECODE: 0.0})
    reader = _TimedReader(loader.reader, clock)
    audio_seconds, count, frames, padded_frames = 0.0, 0, 0, 0
    for work in clock.each(PLAN, islice(planned, batches)):
        with clock(PAD):
            batch = reader[work]

        batch = _compute_deferred(batch, device, clock)
        count += 1
        audio_seconds += batch.seconds
        frames += int(batch.feats_lengths.sum())
        padded_frames += batch.feats.shape[0] * batch.feats.shape[1]

    if not count:
        raise ValueError(
            f"{loader.corpus.data_list}: has only one batch; a profile needs two or more"
        )

    padding = 1 - frames / max(1, padded_frames)
    return Profile(count, audio_seconds, padding, first_batch_seconds, clock.seconds)


class _Clock:
    """Sums the time of each step. A step inside another step counts only for itself."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self._inner = [0.0]
        """For each open step, the time of the steps inside it; the first entry is for steps outside
        of any."""

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Count the time of the block for `step`."""
        began = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self.seconds[step] = self.seconds.get(step, 0.0) + seconds - self._inner.pop()
            self._inner[-1] += seconds

    def each(self, step: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items; the time that it takes to make them counts for `step`."""
        while True:
            with self(step):
                item = next(items, None)
            if item is None:
                return
            yield item


class _TimedReader(BatchReader):
    """Reads as another reader does, and times reading, decoding and every operator."""

    def __init__(self, reader: BatchReader, clock: _Clock) -> None:
        timed_chains = [
            tuple(_timed_operator(operator, clock) for operator in chain) for chain in reader.chains
        ]
        super().__init__(reader.corpus, reader.conf, Chains(*timed_chains), reader.keep_int16)
        self._clock = clock

    def _start_reads(self, refs: list[SampleRef]) -> list[Callable[[], Utterance]]:
        return [_time_calls(read, READ, self._clock) for read in super()._start_reads(refs)]

    def example(self, ref: SampleRef, seed: int, read: Callable[[], Utterance]) -> Example:
        with self._clock(DECODE):
            return super().example(ref, seed, read)


def _compute_deferred(batch: Batch, device: str, clock: _Clock) -> Batch:
    """Compute features that the loader deferred, and time it."""
    if batch.deferred is None:
        return batch

    with clock(DEVICE):
        batch = batch.to(device)
        if batch.feats.is_cuda:
            torch.cuda.synchronize()

    return batch


def _time_calls(function: Callable, step: str, clock: _Clock) -> Callable:
    """Return a function that does the same, and whose time counts for `step`."""

    def call(*arguments: Any) -> Any:
        with clock(step):
            return function(*arguments)

    return call


@dataclass(frozen=True)
class _TimedBatchOperator(BatchOperator):
    """Does what another operator does; its time counts for `step`."""

    operator: BatchOperator
    step: str
    clock: _Clock

    def apply_to_all(self, examples: Sequence[Example]) -> list[Example | SkipSample]:
        with self.clock(self.step):
            return self.operator.apply_to_all(examples)


def _timed_operator(operator: Operator, clock: _Clock) -> Operator:
    if isinstance(operator, BatchOperator):
        return _TimedBatchOperator(operator, _operator_name(operator), clock)
    return _time_calls(operator, _operator_name(operator), clock)


def _operator_name(operator: Any) -> str:
    """Return the class of an operator; for operators of the user, also what `use` names."""
    name_in_config = getattr(operator, "use", "")
    return type(operator).__name__ + (f": {name_in_config}" if name_in_config else "")
