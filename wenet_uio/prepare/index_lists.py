"""Index whole lists before training, in parallel processes.

Valid indexes of earlier runs are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wenet_uio.base.executor import Executor, chunks
from wenet_uio.dataset.corpus.index import Summary
from wenet_uio.dataset.corpus.open_list import (
    ListSource,
    any_remote,
    check_shard_files,
    ensure_index,
    entries_outside,
    index_shards,
)
from wenet_uio.dataset.formats.list_file import read_shards
from wenet_uio.dataset.formats.sample_layout import Layout

REMOTE_SHARDS_PER_JOB = 256
"""A worker waits for the store with many of them at a time."""


class IndexedList(NamedTuple):
    """The index of a list: its totals, and the utterances that cannot be used."""

    data_list: str
    summary: Summary
    bad: list[tuple[str, str]]
    """Key and reason of each utterance that cannot be used."""
    warnings: tuple[str, ...]
    """Sentences about what is odd in the list as a whole."""


def index_list(source: ListSource, executor: Executor) -> IndexedList:
    """Index the shards of a list, then the list.

    A run after a killed one indexes the remaining shards.

    Raises:
        ListError: the list or one of its files does not exist.
    """
    data_list, data_type, layout = source
    if data_type == "shard":
        shards, _ = read_shards(data_list)
        check_shard_files(data_list, shards)
        # Reads a manifest of many tars once, so that forked processes inherit its entries.
        entries_outside(shards)
        per_job = REMOTE_SHARDS_PER_JOB if any_remote(shards) else 1
        jobs = [
            _IndexJob(some_shards, data_list, layout, any_remote(some_shards))
            for some_shards in chunks(shards, per_job)
        ]
        finished_jobs = executor.map(
            _index_some, jobs, data_list, len(shards), lambda job: len(job.shards), unit="shard"
        )
        for _ in finished_jobs:
            pass  # a worker leaves the index of a shard beside the shard

    index = ensure_index(data_list, data_type, layout)
    return IndexedList(data_list, index.summary, index.bad, index.warnings)


class _IndexJob(NamedTuple):
    """Shards of a list that one worker indexes."""

    shards: Sequence[str]
    data_list: str
    layout: Layout
    is_remote: bool


def _index_some(job: _IndexJob) -> None:
    for _ in index_shards(job.shards, job.data_list, job.layout, is_remote=job.is_remote):
        pass
