"""LitData: StreamingDataset and StreamingDataLoader over its chunks.

Practice: https://github.com/Lightning-AI/litData#multi-gpu (shuffle and drop_last for training on
several ranks), https://github.com/Lightning-AI/litData#pause-resume (state_dict),
https://github.com/Lightning-AI/litData#combine-datasets (CombinedStreamingDataset with
`iterate_over_all=True`). The README asks for drop_last in training: "If `drop_last=False` under
multi-GPU, LitData warns - collectives can hang when ranks see different lengths". The row
`litdata_keep` has drop_last=False.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import torch
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter
from protocol import NO_LENGTHS, Run, StatefulAdapter, Step, as_batch
from samples import Sample, shards

NO_ELASTIC_MIXTURE = (
    'load_state_dict refuses: CombinedStreamingDataset supports "resume only when world_size, '
    "num_workers, and "
    'batch_size match": '
    "https://github.com/Lightning-AI/litData/blob/v0.2.76/src/litdata/streaming/dataloader.py"
)


class Loader(StatefulAdapter):
    """StreamingDataset."""

    DROP_LAST: ClassVar = True
    DISTRIBUTIONS = ("litdata", "torch")
    OUT_OF_SCOPE: ClassVar = {
        "padding": NO_LENGTHS,
        "bound": NO_LENGTHS,
        "mixture_resume_ranks": NO_ELASTIC_MIXTURE,
    }

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write chunks."""
        writer = BinaryWriter(str(folder), chunk_size=len(shards(samples)[0]))
        for number, sample in enumerate(samples):
            writer[number] = {"key": sample.key, "content": sample.content()}
        writer.done()
        writer.merge()

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples."""
        if run.world > 1:
            torch.distributed.init_process_group("gloo")

        parts = [
            StreamingDataset(
                str(run.folder / source), shuffle=True, drop_last=self.DROP_LAST, seed=run.seed
            )
            for source in run.sources
        ]
        data = (
            parts[0]
            if len(parts) == 1
            else CombinedStreamingDataset(parts, seed=run.seed, iterate_over_all=True)
        )
        loader = StreamingDataLoader(
            data,
            batch_size=run.batch_size,
            num_workers=run.workers,
            collate_fn=as_batch,
            drop_last=self.DROP_LAST,
        )
        yield from self.steps(loader, run)
