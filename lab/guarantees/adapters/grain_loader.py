"""Grain: ElasticIterator over a shuffled MapDataset, in worker processes.

Practice: https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html
(shuffle), https://google-grain.readthedocs.io/en/latest/tutorials/dataset_advanced_tutorial.html
(mix) and the docstring of ElasticIterator, which shards and batches: one state restores all ranks,
also another number of them,
https://github.com/google/grain/blob/v0.2.18/grain/_src/python/dataset/elastic_iterator.py. It drops
a last batch that is not full. A mixture is MapDataset.mix with weights by size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import grain
from grain.experimental import ElasticIterator
from protocol import NO_LENGTHS, Adapter, Run, Step
from samples import Sample


class Lines:
    """A random access source: a JSON line for each sample, in memory."""

    def __init__(self, folder: Path) -> None:
        self._lines = (folder / "samples.jsonl").read_text().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        key, length = json.loads(self._lines[index])
        return {"key": key, "length": length}


class Loader(Adapter):
    """MapDataset and ElasticIterator."""

    DISTRIBUTIONS = ("grain",)
    OUT_OF_SCOPE: ClassVar = {"padding": NO_LENGTHS, "bound": NO_LENGTHS}

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write a file of lines."""
        lines = (json.dumps([sample.key, sample.length]) for sample in samples)
        (folder / "samples.jsonl").write_text("\n".join(lines))

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples."""
        parts = [
            grain.MapDataset.source(Lines(run.folder / source)).shuffle(seed=run.seed)
            for source in run.sources
        ]
        data = (
            parts[0]
            if len(parts) == 1
            else grain.MapDataset.mix(parts, weights=[len(part) for part in parts])
        )
        self._loader = ElasticIterator(
            data,
            run.global_batch,
            grain.sharding.ShardOptions(run.rank, run.world),
            multiprocessing_options=grain.MultiprocessingOptions(run.workers)
            if run.workers
            else None,
        )
        if run.states is not None:
            self._loader.set_state(run.states[0])

        for batch in self._loader:
            yield [list(zip(batch["key"].tolist(), batch["length"].tolist(), strict=True))]

    def state(self) -> Any:
        """Return the same on every rank."""
        return self._loader.get_state()
