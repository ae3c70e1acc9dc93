"""Lhotse 2.0 alpha: as for Lhotse 1, with indexed manifests.

They restore a state without reading again.

Practice: https://github.com/lhotse-speech/lhotse/blob/master/docs/datasets.rst, "Resumable Stateful
Dataloading (Indexed)": "`num_workers` and `world_size` must match between save and restore". Its
example has the sampler in each worker (IterableDatasetWrapper). Here the sampler is in the main
process, because it then deals equal steps to the ranks.
"""

from pathlib import Path

from lhotse import CutSet
from lhotse.indexing import create_jsonl_index
from lhotse_loader import Loader as Lhotse
from samples import Sample


class Loader(Lhotse):
    """CutSet with an index."""

    def write(self, folder: Path, samples: list[Sample]) -> None:
        """Write a manifest of cuts, and its index, as `lhotse index jsonl` does."""
        super().write(folder, samples)
        create_jsonl_index(folder / "cuts.jsonl")

    def read(self, manifest: Path) -> CutSet:
        """Return the cuts of one source."""
        return CutSet.from_file(manifest, indexed=True)  # pyright: ignore[reportCallIssue] - new in 2.0
