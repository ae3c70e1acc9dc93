"""torchdata's StatefulDataLoader over a map-style dataset, with PyTorch's DistributedSampler.

Practice: https://docs.pytorch.org/data/0.11/stateful_dataloader_tutorial.html. For several ranks
PyTorch recommends DistributedSampler,
https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler; it
pads the epoch with repeated samples or drops the tail. A mixture is a ConcatDataset.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from protocol import NO_LENGTHS, Run, StatefulAdapter, Step
from samples import Sample
from torch.utils.data import ConcatDataset, Dataset
from torch.utils.data.distributed import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

NO_RANKS = (
    'StatefulDataLoader handles the state "across multiprocess workers (but not across ranks)": '
    "https://github.com/meta-pytorch/data/blob/v0.11.0/torchdata/stateful_dataloader/README.md"
)
NO_WORKERS = (
    "a state is refused by an assertion on the number of workers: "
    "https://github.com/meta-pytorch/data/blob/v0.11.0/torchdata/stateful_dataloader/stateful_dataloader.py"
)


class Lines(Dataset):
    """A JSON line for each sample, in memory."""

    def __init__(self, folder: Path) -> None:
        self._lines = (folder / "samples.jsonl").read_text().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return tuple(json.loads(self._lines[index]))


class Loader(StatefulAdapter):
    """StatefulDataLoader."""

    DISTRIBUTIONS = ("torchdata", "torch")
    OUT_OF_SCOPE: ClassVar = {
        "resume_workers": NO_WORKERS,
        "resume_ranks": NO_RANKS,
        "mixture_resume_ranks": NO_RANKS,
        "padding": NO_LENGTHS,
        "bound": NO_LENGTHS,
    }

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write a file of lines."""
        lines = (json.dumps([sample.key, sample.length]) for sample in samples)
        (folder / "samples.jsonl").write_text("\n".join(lines))

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples."""
        data = ConcatDataset([Lines(run.folder / source) for source in run.sources])
        sampler = DistributedSampler(data, run.world, run.rank, shuffle=True, seed=run.seed)
        loader = StatefulDataLoader(
            data, run.batch_size, sampler=sampler, num_workers=run.workers, collate_fn=list
        )
        yield from self.steps(loader, run)
