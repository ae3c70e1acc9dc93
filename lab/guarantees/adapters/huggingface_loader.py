"""Hugging Face datasets: a streaming dataset over parquet files, in torchdata's StatefulDataLoader.

Practice: https://huggingface.co/docs/datasets/stream#save-a-dataset-checkpoint-and-resume-iteration
(state_dict, StatefulDataLoader), https://huggingface.co/docs/datasets/use_with_pytorch#distributed
(split_dataset_by_node), and https://huggingface.co/docs/datasets/stream#interleave with stopping
strategy `all_exhausted_without_replacement` for the mixture.

Its documentation says that resuming loses the samples in a shuffle buffer and fills the buffer
again. So the trials shuffle shards and use no buffer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are local
import datasets
import pyarrow
import pyarrow.parquet
from datasets.distributed import split_dataset_by_node
from protocol import NO_LENGTHS, Run, StatefulAdapter, Step, as_batch
from samples import Sample, shards
from torchdata.stateful_dataloader import StatefulDataLoader

NO_RANKS = (
    "the state is that of one rank and its workers, and StatefulDataLoader keeps states across "
    "workers, not across ranks: "
    "https://github.com/meta-pytorch/data/blob/v0.11.0/torchdata/stateful_dataloader/README.md"
)
NO_WORKERS = (
    "StatefulDataLoader refuses a state of another number of workers by an assertion: "
    "https://github.com/meta-pytorch/data/blob/v0.11.0/torchdata/stateful_dataloader/stateful_dataloader.py"
)


def mixed(parts: list[Any]) -> Any:
    """Return one dataset of several, with each sample once."""
    if len(parts) == 1:
        return parts[0]

    strategy: Any = "all_exhausted_without_replacement"
    return datasets.interleave_datasets(parts, stopping_strategy=strategy)


class Loader(StatefulAdapter):
    """IterableDataset."""

    DISTRIBUTIONS = ("datasets", "torchdata", "torch")
    OUT_OF_SCOPE: ClassVar = {
        "resume_workers": NO_WORKERS,
        "resume_ranks": NO_RANKS,
        "mixture_resume_ranks": NO_RANKS,
        "padding": NO_LENGTHS,
        "bound": NO_LENGTHS,
    }

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write parquet files."""
        for number, group in enumerate(shards(samples)):
            rows = {
                "key": [sample.key for sample in group],
                "content": [sample.content() for sample in group],
            }
            pyarrow.parquet.write_table(pyarrow.table(rows), folder / f"{number:06d}.parquet")

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples; the last batch of each worker may be smaller."""
        parts = []
        for source in run.sources:
            files = [str(path) for path in sorted((run.folder / source).glob("*.parquet"))]
            parts.append(
                datasets.load_dataset(
                    "parquet",
                    data_files=files,
                    split="train",
                    streaming=True,
                    cache_dir=str(run.folder / "cache"),
                )
            )

        data = mixed(parts)
        if len(parts) == 1:
            data = data.shuffle(seed=run.seed, buffer_size=1)

        data = split_dataset_by_node(data, rank=run.rank, world_size=run.world)
        loader = StatefulDataLoader(
            data, run.batch_size, num_workers=run.workers, collate_fn=as_batch
        )
        yield from self.steps(loader, run)
