"""Hugging Face datasets: a Dataset on disk with random access, in torchdata's StatefulDataLoader.

Practice: https://huggingface.co/docs/datasets/use_with_pytorch (load_from_disk, StatefulDataLoader,
`split_dataset_by_node`), https://huggingface.co/docs/datasets/process#shuffle and
https://huggingface.co/docs/datasets/process#interleave for the mixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datasets
from datasets.distributed import split_dataset_by_node
from huggingface_loader import Loader as Streaming
from huggingface_loader import mixed
from protocol import Run, Step, as_batch
from samples import Sample
from torchdata.stateful_dataloader import StatefulDataLoader


class Loader(Streaming):
    """Dataset."""

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write an Arrow file."""
        rows = {
            "key": [sample.key for sample in samples],
            "content": [sample.content() for sample in samples],
        }
        datasets.Dataset.from_dict(rows).save_to_disk(str(folder / "arrow"))

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples."""
        data = mixed(
            [datasets.load_from_disk(str(run.folder / source / "arrow")) for source in run.sources]
        )
        data = split_dataset_by_node(
            data.shuffle(seed=run.seed), rank=run.rank, world_size=run.world
        )
        loader = StatefulDataLoader(
            data, run.batch_size, num_workers=run.workers, collate_fn=as_batch
        )
        yield from self.steps(loader, run)
