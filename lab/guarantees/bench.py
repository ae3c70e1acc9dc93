"""The sizes, corpora and epochs of the trials, and what was lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ranks import Ranks, Server, Step
from samples import LONGEST

WORLDS = (1, 2, 3, 8)
NAMED = 20
"""Keys that the evidence names; the counts are of all keys."""


@dataclass(frozen=True)
class Sizes:
    """How large the trials are."""

    samples: int = 1009
    """Samples of the trials `once` and `steps`; one more than 21 full steps of `global_batch`."""
    resumed: int = 960
    """Samples of the other trials; a multiple of `global_batch`."""
    global_batch: int = 48
    """Samples of a step of all ranks, where batches have a fixed number of samples."""
    workers: int = 2
    """Data workers of each rank."""
    stop_after: int = 5
    """Steps before the state is saved; the ranks are killed one step later."""
    many: int = 100_000
    """Samples of the trial `many`."""
    worlds: tuple[int, ...] = WORLDS

    @property
    def batch_frames(self) -> int:
        """Padded frames of a batch, where batches are made by length.

        That is eight of the longest samples.
        """
        return 8 * LONGEST

    def sources(self, samples: int) -> dict[str, int]:
        """Return the samples of three sources of a mixture: 1/2, 1/3 and 1/6 of all."""
        return {"a": samples // 2, "b": samples // 3, "c": samples - samples // 2 - samples // 3}


@dataclass
class Verdict:
    """The answer to one trial."""

    result: str
    """pass, fail, out of scope, or measured."""
    summary: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """A loader and the folder with its corpora."""

    server: Server
    folder: Path
    sizes: Sizes
    references: dict[str, list[list[Step]]] = field(default_factory=dict)
    """Epochs of two ranks without interruption, by corpus."""

    def reference(self, run: dict[str, Any]) -> list[list[Step]]:
        """Return an epoch of two ranks without interruption; it runs once for each corpus."""
        if run["folder"] not in self.references:
            self.references[run["folder"]] = self.epoch(2, run)
        return self.references[run["folder"]]

    def corpus(self, name: str, sources: dict[str, int]) -> dict[str, Any]:
        """Write the sources unless they are there; return the settings of a run over them."""
        home = self.folder / name
        if not (home / "complete").exists():
            with Ranks(self.server, 1) as ranks:
                for source, number in sources.items():
                    ranks.write(folder=str(home), source=source, number=number)
            (home / "complete").touch()

        sizes = self.sizes
        return {
            "folder": str(home),
            "sources": list(sources),
            "workers": sizes.workers,
            "global_batch": sizes.global_batch,
            "batch_frames": sizes.batch_frames,
        }

    def whole(self) -> dict[str, Any]:
        """Return one source that no number of ranks divides."""
        return self.corpus("whole", {"s": self.sizes.samples})

    def even(self, *, mixed: bool = False) -> dict[str, Any]:
        """Return one source, or three, whose samples fill the batches of a fixed size."""
        samples = self.sizes.resumed
        if mixed:
            return self.corpus("mixed", self.sizes.sources(samples))
        return self.corpus("even", {"s": samples})

    def epoch(self, world: int, run: dict[str, Any]) -> list[list[Step]]:
        """Return the steps of every rank in a whole epoch."""
        with Ranks(self.server, world) as ranks:
            ranks.open(None, **run)
            return rest_of(ranks, world)


def rest_of(ranks: Ranks, world: int) -> list[list[Step]]:
    """Return the steps of every rank until all epochs have ended."""
    steps_of_ranks: list[list[Step]] = [[] for _ in range(world)]
    while True:
        steps = ranks.step()
        if steps == [None] * world:
            return steps_of_ranks

        for of_rank, step in zip(steps_of_ranks, steps, strict=True):
            if step is not None:
                of_rank.append(step)


def _batches(steps_of_ranks: list[list[Step]]) -> Iterator[list[tuple[str, int]]]:
    """Yield the batches of all ranks: key and frames of each sample."""
    for steps in steps_of_ranks:
        for step in steps:
            yield from step


def keys_of(steps_of_ranks: list[list[Step]]) -> Counter[str]:
    """Return how often each sample was read by all ranks together."""
    return Counter(key for batch in _batches(steps_of_ranks) for key, _ in batch)


def batches_of(steps_of_ranks: list[list[Step]]) -> Iterator[list[int]]:
    """Return the lengths of each batch that has samples."""
    return ([frames for _, frames in batch] for batch in _batches(steps_of_ranks) if batch)


def difference(wanted: Counter[str], read: Counter[str]) -> dict[str, Any]:
    """Return what was lost and what was read too often: counts, and the first keys."""
    faults = {}
    keys_of_fault = {"lost": wanted - read, "doubled": read - wanted}
    for name, counts in keys_of_fault.items():
        keys = sorted(counts.elements())
        if keys:
            faults |= {name: len(keys), f"{name}_keys": keys[:NAMED]}

    return faults


def told(faults: dict[str, Any]) -> str:
    """Return the counts of a difference in words."""
    return ", ".join(f"{faults[name]} {name}" for name in ("lost", "doubled") if name in faults)
