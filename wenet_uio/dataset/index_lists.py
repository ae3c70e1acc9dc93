"""Indexing whole lists ahead of training, in parallel processes; what is there already is kept."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tqdm import tqdm

from wenet_uio.dataset.columns import read_columns
from wenet_uio.dataset.data_list import read_shard_list
from wenet_uio.dataset.index import Summary
from wenet_uio.dataset.indexing import (
    check_shard_files,
    check_type,
    ensure_index,
    entries_outside,
    index_of,
    index_shard,
)
from wenet_uio.dataset.shard_layout import Layout
from wenet_uio.dataset.sources import SourceList


class IndexedList(NamedTuple):
    """What the index of a list says."""

    data_list: str
    summary: Summary
    bad: list[tuple[str, str]]
    """(key, reason) of what cannot be used."""


def index_list(source: SourceList, processes: int = 1) -> IndexedList:
    """Index a list, its shards first, `processes` at a time; a run that was killed goes on where it stopped.

    Raises:
        ListError: no such list, or one with files that are not there.
    """
    data_list, data_type, layout = source
    if data_type == "shard":
        check_type(data_list, "shard")
        index_shards(data_list, layout, processes)
    ensure_index(data_list, data_type, layout)
    _, meta = read_columns(index_of(data_list, layout))
    return IndexedList(data_list, Summary(**meta["summary"]), [tuple(item) for item in meta["bad"]])


def index_shards(data_list: str, layout: Layout, processes: int) -> None:
    """Index each shard of a list beside it, unless that is done."""
    shards = read_shard_list(data_list)
    check_shard_files(data_list, shards)
    entries_outside(shards)  # reads the manifest of many tars once, for the processes to inherit
    samples = bad = 0
    with ProcessPoolExecutor(processes) as pool, tqdm(None, data_list, len(shards), unit="shard", disable=None) as bar:
        for more_samples, more_bad in pool.map(partial(_counts, data_list=data_list, layout=layout), shards):
            samples, bad = samples + more_samples, bad + more_bad
            bar.set_postfix(utterances=samples, bad=bad, refresh=False)
            bar.update()


def _counts(shard: str, data_list: str, layout: Layout) -> tuple[int, int]:
    rows, bad = index_shard(shard, data_list, layout)
    return len(rows), len(bad)
