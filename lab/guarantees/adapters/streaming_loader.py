"""MosaicML Streaming: StreamingDataset over MDS shards, StreamingDataLoader.

Practice:
https://docs.mosaicml.com/projects/streaming/en/latest/distributed_training/fast_resumption.html
(state_dict of StreamingDataLoader), .../distributed_training/elastic_determinism.html (a global
batch of a fixed size),
https://docs.mosaicml.com/projects/streaming/en/latest/dataset_configuration/mixing_data_sources.html
(streams without a weight are read once). `batch_size` is given to both classes, as the FAQ asks.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from protocol import NO_LENGTHS, Batch, Run, StatefulAdapter, Step
from samples import Sample, shards

# `import streaming` loads torchvision for image datasets, which the trials do not use. A
# torchvision that fits the installed torch is not in every registry, so an empty one takes its
# place. transformers looks for torchvision, so it is loaded before. Its name is a string because
# the type checker would read its 2200 files.
importlib.import_module("transformers.feature_extraction_utils")
for name in (
    "torchvision",
    "torchvision.datasets",
    "torchvision.transforms",
    "torchvision.transforms.functional",
):
    sys.modules[name] = ModuleType(name)
sys.modules["torchvision.datasets"].__dict__["VisionDataset"] = object
sys.modules["torchvision.transforms.functional"].__dict__["to_tensor"] = None

from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


def collate(samples: list[dict[str, Any]]) -> dict[str, list]:
    """Return a dict, because StreamingDataLoader counts the samples of its first value."""
    return {name: [sample[name] for sample in samples] for name in ("key", "content")}


class Loader(StatefulAdapter):
    """StreamingDataset with StreamingDataLoader."""

    DISTRIBUTIONS = ("mosaicml-streaming", "torch")
    OUT_OF_SCOPE: ClassVar = {"padding": NO_LENGTHS, "bound": NO_LENGTHS}

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write MDS shards."""
        size = len(shards(samples)[0]) * 128
        with MDSWriter(
            out=str(folder), columns={"key": "str", "content": "bytes"}, size_limit=size
        ) as writer:
            for sample in samples:
                writer.write({"key": sample.key, "content": sample.content()})

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples."""
        if run.world > 1:
            torch.distributed.init_process_group("gloo")

        clean_stale_shared_memory()
        streams = [Stream(local=str(run.folder / source)) for source in run.sources]
        data = StreamingDataset(
            streams=streams, shuffle=True, shuffle_seed=run.seed, batch_size=run.batch_size
        )
        loader = StreamingDataLoader(
            data, run.batch_size, num_workers=run.workers, collate_fn=collate
        )
        yield from self.steps(loader, run)

    def batch(self, loaded: dict[str, list]) -> Batch:
        """Return keys and lengths."""
        return list(zip(loaded["key"], map(len, loaded["content"]), strict=True))
