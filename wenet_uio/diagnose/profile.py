"""Where the time of a batch goes, step by step, in one process; and what to change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.reader import BatchReader

PLAN, READ, DECODE, PAD, DEVICE = "plan", "read", "decode", "pad and the rest", "features on the device"
ADVICE = {
    PLAN: (0.2, "small batches: raise max_frames_in_batch or batch_size where memory allows"),
    READ: (0.25, "storage is slow: pack shards (make_shard_list.py), on a local disk or with WENET_UIO_CACHE on one"),
    DECODE: (0.3, "pack 16-bit wav (make_shard_list.py --audio_format wav), which is not decoded, if there is room"),
    "Resample": (0.1, "pack audio at resample_rate (make_shard_list.py --resample HZ)"),
    "SpeedPerturb": (0.3, "nothing to save: fewer speeds in speed_perturb_conf, or more workers"),
    "Tokenize": (0.2, "texts are long: a tokenizer with a smaller model, or more workers"),
    "ComputeFbank": (0.5, "feature_device: accelerator takes the features off the workers, where there is a GPU"),
    "ComputeMfcc": (0.5, "feature_device: accelerator takes the features off the workers, where there is a GPU"),
    "ComputeLogMelSpectrogram": (0.5, "feature_device: accelerator takes the features off the workers"),
    "UserOperator": (0.3, "operators of your own: see what they do to each utterance"),
    PAD: (0.3, "many short utterances: this is work of a batch, not of its audio; more workers"),
}
"""Share of the time from which on a step is worth a change, and the change."""


@dataclass(frozen=True)
class Profile:
    """Of some batches, read by one process."""

    batches: int
    audio_seconds: float
    padding: float
    """Share of the frames."""
    first_batch_seconds: float
    """From opening the data list, which is not in `seconds`."""
    seconds: dict[str, float]
    """By step, in the order of the chain."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def speed(self) -> float:
        """Audio seconds per second of one process."""
        return self.audio_seconds / self.total

    def advice(self) -> list[str]:
        """What is worth a change, the largest share first."""
        lines = []
        for step, seconds in sorted(self.seconds.items(), key=lambda item: -item[1]):
            least, change = ADVICE.get(step.partition(":")[0], (1.0, ""))
            if seconds >= least * self.total:
                lines.append(f"{step} takes {seconds / self.total:.0%}: {change}")
        if self.padding > 0.05:
            lines.append(f"{self.padding:.0%} of the frames are padding: see plan_report.py")
        return lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "audio_seconds": round(self.audio_seconds, 1),
            "audio_seconds_per_second": round(self.speed, 1),
            "first_batch_seconds": round(self.first_batch_seconds, 3),
            "padding": round(self.padding, 4),
            "ms_per_batch": {step: round(1000 * s / self.batches, 3) for step, s in self.seconds.items()},
            "share": {step: round(seconds / self.total, 4) for step, seconds in self.seconds.items()},
            "advice": self.advice(),
        }


def profile(make_loader: Callable[[], Loader], batches: int, device: str = "cpu") -> Profile:
    """Read the first batches of an epoch, after one that warms up, with a clock at every step.

    Args:
        make_loader: opens the data, without workers.
        batches: at most.
        device: where features are computed that are left to it.

    Raises:
        ValueError: there are no batches.
    """
    began = time.perf_counter()
    loader = make_loader()
    planned = (work for _, work in loader.cursor.upcoming())
    if (work := next(planned, None)) is None:
        raise ValueError(f"{loader.corpus.data_list}: no batch to read")
    plain: BatchReader = loader.reader
    plain[work].to(device)
    first = time.perf_counter() - began
    clock = _Clock({PLAN: 0.0, READ: 0.0, DECODE: 0.0})
    reader = _TimedReader(plain, clock)
    audio, count, frames, padded = 0.0, 0, 0, 0
    for work in clock.each(PLAN, islice(planned, batches)):
        with clock(PAD):
            batch = reader[work]
        if batch.deferred is not None:
            with clock(DEVICE):
                batch = batch.to(device)
                if batch.feats.is_cuda:
                    torch.cuda.synchronize()
        audio, count = audio + batch.seconds, count + 1
        frames, padded = frames + int(batch.feats_lengths.sum()), padded + batch.feats.shape[0] * batch.feats.shape[1]
    if not count:
        raise ValueError(f"{loader.corpus.data_list}: one batch is all there is; a profile needs more")
    return Profile(count, audio, 1 - frames / max(1, padded), first, clock.seconds)


class _Clock:
    """Sums of time by step; a step within another stops that one's clock."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self._inner = [0.0]

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        began = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = time.perf_counter() - began
            self.seconds[step] = self.seconds.get(step, 0.0) + whole - self._inner.pop()
            self._inner[-1] += whole

    def each(self, step: str, items: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self(step):
                item = next(items, None)
            if item is None:
                return
            yield item


class _TimedReader(BatchReader):
    """A reader with a clock at what it calls."""

    def __init__(self, reader: BatchReader, clock: _Clock) -> None:
        self.__dict__.update(reader.__dict__)
        self._clock = clock
        self.chain, self.text_chain = (
            tuple(_timed(operator, _name(operator), clock) for operator in chain)
            for chain in (reader.chain, reader.text_chain)
        )

    def _reads(self, refs):
        return [_timed(read, READ, self._clock) for read in super()._reads(refs)]

    def example(self, ref, seed, read):
        with self._clock(DECODE):
            return super().example(ref, seed, read)


def _timed(function: Callable, step: str, clock: _Clock) -> Callable:
    def call(*arguments: Any) -> Any:
        with clock(step):
            return function(*arguments)

    return call


def _name(operator: Any) -> str:
    own = getattr(operator, "use", "")
    return type(operator).__name__ + (f": {own}" if own else "")
