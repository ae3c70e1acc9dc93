"""LanceDB: StreamingDataset over a table, StreamingDataLoader.

Practice: https://docs.lancedb.com/training/distributed-training (`num_splits` fits every number of
ranks and workers and divides the global batch), https://docs.lancedb.com/training/checkpointing
(StreamingDataLoader with workers, started by forkserver; a state at the end of a step),
https://docs.lancedb.com/training/resuming (`merge_state_dicts`). A step of a rank is a batch of
each worker, so at its end each split has given as many samples as any other.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import lancedb
import pyarrow
from lancedb.streaming import StreamingDataLoader, StreamingDataset
from protocol import NO_LENGTHS, Adapter, Batch, Run, Step
from samples import Sample


def collate(rows: list[dict[str, Any]]) -> Batch:
    """Return keys and lengths."""
    return [(row["key"], len(row["content"])) for row in rows]


class Loader(Adapter):
    """StreamingDataset with StreamingDataLoader."""

    DISTRIBUTIONS = ("lancedb", "torch")
    OUT_OF_SCOPE: ClassVar = {"padding": NO_LENGTHS, "bound": NO_LENGTHS}

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Add the source to the table of all sources."""
        columns = {
            "key": [sample.key for sample in samples],
            "content": [sample.content() for sample in samples],
        }
        rows = pyarrow.table(columns)
        database = lancedb.connect(folder.parent)
        database.create_table("samples", schema=rows.schema, exist_ok=True).add(rows)

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples of all workers of the rank together."""
        self._dataset = StreamingDataset(
            lancedb.connect(run.folder).open_table("samples"),
            num_splits=run.global_batch,
            shuffle_seed=run.seed,
            rank=run.rank,
            world_size=run.world,
        )
        if run.states is not None:
            self._dataset.load_state_dict(StreamingDataset.merge_state_dicts(list(run.states)))

        parts = max(1, run.workers)
        loader = StreamingDataLoader(
            self._dataset,
            batch_size=run.batch_size // parts,
            num_workers=run.workers,
            collate_fn=collate,
            multiprocessing_context="forkserver" if run.workers else None,
        )
        # Loaded once for all workers
        multiprocessing.set_forkserver_preload(["torch.utils.data", "pyarrow"])
        batches = iter(loader)
        while step := list(islice(batches, parts)):
            yield step

    def state(self) -> Any:
        """Return the state of the splits of this rank."""
        return self._dataset.state_dict()
