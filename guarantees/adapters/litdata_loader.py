"""LitData: StreamingDataset and StreamingDataLoader over its chunks.

Practice: https://lightning.ai/docs/litdata/features/mulit-gpu-multi-node (shuffle and drop_last for training on several
ranks), https://github.com/Lightning-AI/litData#readme (pause and resume by state_dict, CombinedStreamingDataset with
`iterate_over_all=True`). The trials ask for every sample, so drop_last is False; with True, ranks take equal steps and
the tail of the epoch is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import torch
from corpus import Sample, shards
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter
from protocol import Run, StatefulAdapter, Step, as_batch

NO_LENGTHS = "batches have a fixed number of samples"
NO_ELASTIC_MIXTURE = (
    "CombinedStreamingDataset resumes only with the same world_size, num_workers and batch_size, as its error message "
    "says: https://github.com/Lightning-AI/litData#readme"
)


class Loader(StatefulAdapter):
    """StreamingDataset."""

    DISTRIBUTIONS = ("litdata", "torch")
    OUT_OF_SCOPE: ClassVar = {"padding": NO_LENGTHS, "bound": NO_LENGTHS, "mixture_resume_ranks": NO_ELASTIC_MIXTURE}

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write chunks."""
        writer = BinaryWriter(str(folder), chunk_size=len(shards(samples)[0]))
        for number, sample in enumerate(samples):
            writer[number] = {"key": sample.key, "content": sample.content()}
        writer.done()
        writer.merge()

    def open(self, run: Run) -> Iterator[Step]:
        """Batches of `run.batch_size` samples."""
        if run.world > 1:
            torch.distributed.init_process_group("gloo")
        parts = [
            StreamingDataset(str(run.folder / source), shuffle=True, drop_last=False, seed=run.seed)
            for source in run.sources
        ]
        data = parts[0] if len(parts) == 1 else CombinedStreamingDataset(parts, seed=run.seed, iterate_over_all=True)
        loader = StreamingDataLoader(
            data, batch_size=run.batch_size, num_workers=run.workers, collate_fn=as_batch, drop_last=False
        )
        yield from self.steps(loader, run)
