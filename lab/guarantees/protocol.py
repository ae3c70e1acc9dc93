"""An adapter: a class that writes a corpus, opens a loader, and saves and loads its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from samples import Sample

Batch = list[tuple[str, int]]
"""Key and length in frames of each sample of a batch, as the loader yields them."""
Step = list[Batch]
"""The batches of one rank in one step of the optimizer: one batch, or several micro-batches."""

NO_LENGTHS = "batches have a fixed number of samples; batching by length is left to the user"
"""Why trials of padding are out of scope for most loaders."""


@dataclass(frozen=True)
class Run:
    """One rank of a training run, as the driver asks for it."""

    folder: Path
    """Holds one folder for each source, written by `Adapter.write`."""
    sources: tuple[str, ...]
    """One source, or the three of a mixture. Each sample of each source is to be read once."""
    rank: int
    world: int
    workers: int
    global_batch: int
    """Samples of a step of all ranks together, for loaders whose batches have a fixed number of
    samples."""
    batch_frames: int
    """Padded frames of a batch of one rank, for loaders that make batches by length."""
    states: tuple[Any, ...] | None
    """States of all ranks of the killed run, in the order of ranks. None: start the epoch."""
    seed: int = 7

    @property
    def batch_size(self) -> int:
        """Samples of a batch of this rank."""
        return self.global_batch // self.world


class Adapter(ABC):
    """A loader under trial, set up as its documentation recommends.

    The class `Loader` of an adapter's file is used.
    """

    DISTRIBUTIONS: ClassVar[tuple[str, ...]] = ()
    """Installed packages whose versions the table shows."""
    OUT_OF_SCOPE: ClassVar[Mapping[str, str]] = {}
    """Names of trials that the project does not promise: the reason, with a link to its
    documentation."""

    @abstractmethod
    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write one source to `folder`, in the format of the project."""

    @abstractmethod
    def open(self, run: Run) -> Iterator[Step]:
        """Open the loader for one epoch, or continue it from `run.states`; return its steps."""

    def state(self) -> Any:
        """Return the state after the step that was yielded last; anything that pickle can write."""
        raise NotImplementedError("this adapter has no state")


class StatefulAdapter(Adapter):
    """An adapter of a loader of batches with `state_dict` and `load_state_dict`, on each rank."""

    def steps(self, loader: Any, run: Run) -> Iterator[Step]:
        """Yield the batches of the loader, each a step.

        A resumed run loads the state of its rank, or else the last one.
        """
        self._loader = loader
        if run.states is not None:
            loader.load_state_dict(run.states[min(run.rank, len(run.states) - 1)])
        for batch in loader:
            yield [self.batch(batch)]

    def batch(self, loaded: Any) -> Batch:
        """Return a batch of the loader in the form of the trials."""
        return loaded

    def state(self) -> Any:
        """Return the state of this rank."""
        return self._loader.state_dict()


def as_batch(samples: list[dict[str, Any]]) -> Batch:
    """Collate samples with a key and a content."""
    return [(sample["key"], len(sample["content"])) for sample in samples]
