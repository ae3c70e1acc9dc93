"""Lhotse: DynamicBucketingSampler in the main process, and torchdata's StatefulDataLoader.

The data set is a map-style one.

Practice: https://lhotse.readthedocs.io/en/latest/datasets.html (samplers, their `state_dict`). Its
example has PyTorch's DataLoader and says that with data workers the sampler is ahead of the loop.
The documentation of 2.0 recommends StatefulDataLoader, which keeps the state of the sampler at the
batch that the loop received. So the trials use it for both versions. With `drop_last=False` the
last batches are shared among the ranks. A mixture is CutSet.mux with weights by size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import torch
from lhotse import CutSet, MonoCut
from lhotse.cut import Cut
from lhotse.dataset import DynamicBucketingSampler
from protocol import Batch, Run, StatefulAdapter, Step
from samples import Sample
from torchdata.stateful_dataloader import StatefulDataLoader

NO_RANKS = (
    'load_state_dict of CutSampler refuses another world_size: "Changing the world_size would '
    "result in different "
    'batches": https://github.com/lhotse-speech/lhotse/blob/master/lhotse/dataset/sampling/base.py'
)
NO_WORKERS = (
    'with StatefulDataLoader, the number of workers "must match between save and restore": '
    "https://lhotse.readthedocs.io/en/latest/datasets.html"
)


class Frames(torch.utils.data.Dataset):
    """Keys and lengths of the cuts of a batch."""

    def __getitem__(self, cuts: Iterable[Cut]) -> Batch:
        return [(cut.id, round(cut.duration * 100)) for cut in cuts]


class Loader(StatefulAdapter):
    """CutSet and DynamicBucketingSampler."""

    DISTRIBUTIONS = ("lhotse", "torchdata", "torch")
    OUT_OF_SCOPE: ClassVar = {
        "resume_workers": NO_WORKERS,
        "resume_ranks": NO_RANKS,
        "mixture_resume_ranks": NO_RANKS,
    }

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write a manifest of cuts without audio."""
        cuts = (MonoCut(sample.key, 0.0, sample.length / 100, 0) for sample in samples)
        with CutSet.open_writer(folder / "cuts.jsonl") as writer:
            for cut in cuts:
                writer.write(cut)

    def read(self, manifest: Path) -> CutSet:
        """Return the cuts of one source."""
        return CutSet.from_jsonl_lazy(manifest)

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of at most `run.batch_frames` padded frames."""
        manifests = [run.folder / source / "cuts.jsonl" for source in run.sources]
        parts = [self.read(path) for path in manifests]
        sizes: list[int | float] = [len(path.read_bytes().splitlines()) for path in manifests]
        cuts = parts[0] if len(parts) == 1 else CutSet.mux(*parts, weights=sizes, seed=run.seed)
        sampler = DynamicBucketingSampler(
            cuts,
            max_duration=run.batch_frames / 100,
            num_buckets=30,
            shuffle=True,
            drop_last=False,
            seed=run.seed,
            rank=run.rank,
            world_size=run.world,
        )
        loader = StatefulDataLoader(
            Frames(), sampler=sampler, batch_size=None, num_workers=run.workers
        )
        yield from self.steps(loader, run)
