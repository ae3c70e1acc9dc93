"""WebDataset: shards split by node and worker, a shuffle buffer, batches in the workers.

Practice: https://github.com/webdataset/webdataset#readme and, for several nodes,
https://webdataset.github.io/webdataset/multinode/: shards are split, and ranks may differ in their
number of steps. The README says that resampled shards are usual on several nodes; with
`with_epoch`, ranks then take equal steps, but an epoch is not one pass over the data. The trials
ask for one pass, so shards are split here. A mixture is RandomMix with `longest=True`.
"""

# pyright: reportAttributeAccessIssue=false
# WebDataset has stubs that do not name what it exports.
from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import webdataset
from protocol import NO_LENGTHS, Adapter, Run, Step
from samples import Sample, shards
from webdataset.mix import RandomMix

NO_STATE = (
    'to keep track of the samples that were read, "WebDataset can\'t really do this for you"; its '
    "author recommends resampled shards: https://github.com/webdataset/webdataset/issues/271"
)


def as_pair(sample: dict) -> tuple[str, int]:
    """Return the key and length of a sample."""
    return sample["__key__"], len(sample["bin"])


class Loader(Adapter):
    """WebDataset with WebLoader."""

    DISTRIBUTIONS = ("webdataset", "torch")
    OUT_OF_SCOPE: ClassVar = {
        **dict.fromkeys(("resume_same", "resume_workers", "resume_ranks", "state_size"), NO_STATE),
        **dict.fromkeys(("mixture_resume_same", "mixture_resume_ranks"), NO_STATE),
        "padding": NO_LENGTHS,
        "bound": NO_LENGTHS,
    }

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write tars."""
        for number, group in enumerate(shards(samples)):
            with tarfile.open(folder / f"{number:06d}.tar", "w") as tar:
                for sample in group:
                    member = tarfile.TarInfo(f"{sample.key}.bin")
                    member.size = sample.length
                    tar.addfile(member, io.BytesIO(sample.content()))

    def open(self, run: Run) -> Iterator[Step]:
        """Yield batches of `run.batch_size` samples; the last batch of each worker may be smaller."""
        parts = []
        for source in run.sources:
            tars = [str(path) for path in sorted((run.folder / source).glob("*.tar"))]
            split = webdataset.split_by_node
            part = webdataset.WebDataset(
                tars,
                shardshuffle=100,
                nodesplitter=split,
                workersplitter=webdataset.split_by_worker,
                seed=run.seed,
            )
            parts.append(part.shuffle(100).map(as_pair))

        data = (
            parts[0] if len(parts) == 1 else webdataset.DataPipeline(RandomMix(parts, longest=True))
        )
        batches = (
            data.listed(run.batch_size)
            if len(parts) == 1
            else data.compose(_listed(run.batch_size))
        )
        for batch in webdataset.WebLoader(batches, batch_size=None, num_workers=run.workers):
            yield [batch]


def _listed(size: int):  # noqa: ANN202 - a stage of WebDataset
    return webdataset.filters.batched(size, collation_fn=None)
