"""Lhotse: DynamicBucketingSampler in the main process, a map-style dataset, PyTorch's DataLoader.

Practice: https://lhotse.readthedocs.io/en/latest/datasets.html (samplers, DynamicBucketingSampler, `state_dict` of the
sampler). With `drop_last=False` the last batches are shared among the ranks, so that all take equal steps. A mixture
is CutSet.mux with weights by size. Samplers refuse a state of another world size. With data workers the sampler is
ahead of the batches that the loop has received, and so is its state.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from corpus import Sample
from lhotse import CutSet, MonoCut
from lhotse.dataset import DynamicBucketingSampler
from protocol import Adapter, Batch, Run, Step

NO_RANKS = (
    "load_state_dict of CutSampler refuses another world_size: "
    "https://github.com/lhotse-speech/lhotse/blob/master/lhotse/dataset/sampling/base.py"
)


class Frames(torch.utils.data.Dataset):
    """Keys and lengths of the cuts of a batch."""

    def __getitem__(self, cuts: CutSet) -> Batch:
        return [(cut.id, round(cut.duration * 100)) for cut in cuts]


class Loader(Adapter):
    """CutSet and DynamicBucketingSampler."""

    DISTRIBUTIONS = ("lhotse", "torch")
    OUT_OF_SCOPE: ClassVar = {"resume_ranks": NO_RANKS, "mixture_resume_ranks": NO_RANKS}

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write a manifest of cuts without audio."""
        cuts = (MonoCut(sample.key, 0.0, sample.length / 100, 0) for sample in samples)
        with CutSet.open_writer(folder / "cuts.jsonl") as writer:
            for cut in cuts:
                writer.write(cut)

    def open(self, run: Run) -> Iterator[Step]:
        """Batches of at most `run.batch_frames` padded frames."""
        manifests = [run.folder / source / "cuts.jsonl" for source in run.sources]
        parts = [CutSet.from_jsonl_lazy(path) for path in manifests]
        sizes = [len(path.read_bytes().splitlines()) for path in manifests]
        cuts = parts[0] if len(parts) == 1 else CutSet.mux(*parts, weights=sizes, seed=run.seed)
        self._sampler = DynamicBucketingSampler(
            cuts,
            max_duration=run.batch_frames / 100,
            num_buckets=10,
            shuffle=True,
            drop_last=False,
            seed=run.seed,
            rank=run.rank,
            world_size=run.world,
        )
        if run.states is not None:
            self._sampler.load_state_dict(copy.deepcopy(run.states[run.rank]))
        loader = torch.utils.data.DataLoader(Frames(), sampler=self._sampler, batch_size=None, num_workers=run.workers)
        for batch in loader:
            yield [batch]

    def state(self) -> Any:
        """The state of the sampler of this rank."""
        return self._sampler.state_dict()
