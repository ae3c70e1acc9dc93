"""Index whole lists before training, in parallel processes.

Valid indexes of earlier runs are kept.
"""

from __future__ import annotations

from typing import NamedTuple

from wenet_uio.dataset.corpus.columns import read_columns
from wenet_uio.dataset.corpus.index import Summary
from wenet_uio.dataset.corpus.indexing import (
    check_shard_files,
    ensure_index,
    entries_outside,
    index_shard,
)
from wenet_uio.dataset.formats.list_file import read_shards
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.sources.lists import SourceList
from wenet_uio.executor import Executor


class IndexedList(NamedTuple):
    """The index of a list: its totals, and the utterances that cannot be used."""

    data_list: str
    summary: Summary
    bad: list[tuple[str, str]]
    """Key and reason of each utterance that cannot be used."""


def index_list(source: SourceList, executor: Executor) -> IndexedList:
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
        jobs = [(shard, data_list, layout) for shard in shards]
        for _ in executor.map(_index, jobs, data_list, len(jobs), unit="shard"):
            pass

    _, meta = read_columns(ensure_index(data_list, data_type, layout))
    return IndexedList(data_list, Summary(**meta["summary"]), [tuple(item) for item in meta["bad"]])


def _index(job: tuple[str, str, Layout]) -> None:
    index_shard(*job)
