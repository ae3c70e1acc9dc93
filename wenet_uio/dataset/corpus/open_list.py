"""Open a raw list or a shard list as a corpus, with its index.

The index is made once, by one process, and kept beside the list as `data.list.idx`. If that folder
cannot be written, the index is in the cache. It is made again if the content of the list has
changed. In addition, each shard of a shard list has an index of its own (`shard_index`,
`remote_index`).
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from tqdm import tqdm

from wenet_uio.audio.decoders import FRAME_RATE
from wenet_uio.base.executor import Executor
from wenet_uio.base.messages import hides_bar, warn_once
from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.columns import GrowingColumns
from wenet_uio.dataset.corpus.index import (
    COLUMNS,
    Indexed,
    ListIndex,
    Problem,
    Rows,
    Stored,
    shard_table,
    summary_of,
)
from wenet_uio.dataset.corpus.raw_corpus import RawCorpus
from wenet_uio.dataset.corpus.raw_index import (
    UTTERANCES_PER_RUN,
    ListContents,
    raw_index,
)
from wenet_uio.dataset.corpus.remote_index import update_kept_index
from wenet_uio.dataset.corpus.repeats import (
    NAMED,
    KeyHashes,
    Place,
    repeats_in_shards,
    with_others,
)
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.corpus.shard_index import Comparison, kept_folder, shard_index
from wenet_uio.dataset.corpus.unread_audio import has_returned, state_of
from wenet_uio.dataset.formats.data_list import DataType, ShardFiles, shards_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.list_file import DataList, FileState, LineFile, opened_list
from wenet_uio.dataset.formats.nemo_tarred import entries_without_tar
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import making, places_of
from wenet_uio.dataset.storage.ranged_object import REQUESTS

log = logging.getLogger(__name__)


class ListSource(NamedTuple):
    """A raw list or a shard list."""

    data_list: str
    data_type: DataType
    layout: Layout = DEFAULT_LAYOUT
    """How names in tars and manifests of other tools are read."""

    def lists(self) -> list[ListSource]:
        """Return this list."""
        return [self]

    def open(self) -> Corpus:
        """Open the list, see `open_list`."""
        return open_list(*self)


def open_list(data_list: str, data_type: DataType, layout: Layout = DEFAULT_LAYOUT) -> Corpus:
    """Open a raw or shard list; index the list first if it has no index or has changed.

    Args:
        data_list: path of the list.
        data_type: type of the list.
        layout: how names in tars and manifests of other tools are read; the default recognises most
            by itself.

    Raises:
        ListError: the list is missing, of the other type, or holds no usable utterance.
        OSError, ValueError: audio is remote and the cache cannot be used.
    """
    lines = open_list_file(data_list, data_type)
    index = index_of_file(lines, data_type, layout)
    if data_type == "raw":
        corpus: Corpus = RawCorpus(lines, index, layout)
    else:
        lines.close()
        corpus = ShardCorpus(data_list, index, layout)

    if corpus.is_remote:
        objects.check_cache()
    corpus.require_samples("no usable utterance")
    log.debug("%s: %d utterances, and %d bad", data_list, corpus.num_samples, len(corpus.bad))
    return corpus


THREADS = Executor(min(16, 2 * (os.cpu_count() or 1)), "threads")
"""Default executor that reads the headers of audio files."""


def index_of(data_list: str | Path, layout: Layout = DEFAULT_LAYOUT) -> Path:
    """Return the path of the index of a list."""
    return Path(f"{data_list}{layout.suffix}.idx")


def ensure_index(data_list: str, data_type: DataType, layout: Layout = DEFAULT_LAYOUT) -> ListIndex:
    """Return the index of a list; arguments and errors are those of `open_list_file` and
    `index_of_file`.
    """
    with closing(open_list_file(data_list, data_type)) as file:
        return index_of_file(file, data_type, layout)


def open_list_file(data_list: str, data_type: DataType) -> LineFile:
    """Open the file of a list.

    Raises:
        ListError: as `opened_list`, or there is no such type.
    """
    if data_type not in get_args(DataType):
        raise ListError(f"data_type {data_type!r}: expected {' or '.join(get_args(DataType))}")
    return opened_list(data_list)


def index_of_file(file: LineFile, data_type: DataType, layout: Layout) -> ListIndex:
    """Return the index of an open list, which is made first unless it is up to date. One process
    works, the others wait.

    Raises:
        ListError: the list is empty, or of the other type.
        OSError: neither the folder of the list nor the cache can be written.
    """
    index = _current_index(file, data_type, layout)
    if index is not None and not has_returned(index.meta, file.path):
        return index

    log.debug("%s: no index of this content yet; it is made", file.path)
    with making(places_of(index_of(file.path, layout))):
        file.refresh()
        made_meanwhile = _current_index(file, data_type, layout)
        if made_meanwhile and not (index and index.meta == made_meanwhile.meta):
            return made_meanwhile
        return index_lines_of(file, data_type, layout=layout)


def build_index(
    data_list: str,
    data_type: DataType,
    per_run: int = UTTERANCES_PER_RUN,
    executor: Executor = THREADS,
    layout: Layout = DEFAULT_LAYOUT,
) -> ListIndex:
    """Index a list whether it has an index or not; arguments and errors are those of
    `index_lines_of`.
    """
    with closing(opened_list(data_list)) as file:
        return index_lines_of(file, data_type, per_run, executor, layout)


def index_lines_of(
    file: LineFile,
    data_type: DataType,
    per_run: int = UTTERANCES_PER_RUN,
    executor: Executor = THREADS,
    layout: Layout = DEFAULT_LAYOUT,
) -> ListIndex:
    """Index an open list from the headers of its audio.

    Args:
        per_run: lines of a raw list that count as one shard.
        executor: reads the headers of a raw list.

    Raises:
        ListError: the list is empty or of the other type, or a shard that it names is missing.
        OSError: the system does not give a local file, for another reason than that it is missing.
    """
    lines = DataList(file, data_type)
    contents = (
        raw_index(lines, per_run, executor, layout)
        if data_type == "raw"
        else _shard_index_of(lines, layout)
    )
    state = lines.state()
    meta: dict[str, Any] = {
        "type": data_type,
        "bad": contents.bad,
        "summary": asdict(summary_of(contents.columns)),
        "bytes": state.size,
        "mtime_ns": state.mtime_ns,
        "digest": state.digest,
        "remote": contents.is_remote,
        "features": bool((contents.columns["sample_rate"] == FRAME_RATE).any()),
    }
    if contents.unread:
        meta["unread"] = contents.unread
    if contents.warnings:
        meta["warnings"] = contents.warnings
    for warning in contents.warnings:
        warn_once(f"{file.path}: {warning}")

    file.digest = state.digest
    return ListIndex.write(places_of(index_of(file.path, layout)), contents.columns, meta)


def _shard_index_of(lines: DataList, layout: Layout) -> ListContents:
    """Return what the index of a shard list holds."""
    data_list = lines.path
    shards, bad = shards_of(data_list, (line for _, line in lines.lines()))
    is_remote = any_remote(shards)
    check_shard_files(data_list, shards)
    bad.extend(entries_outside(shards))
    used: list[str] = []
    damage: dict[str, str] = {}
    hashes = KeyHashes()
    lengths = GrowingColumns({name: COLUMNS[name] for name in Stored._fields})

    def rows() -> Iterator[Rows]:
        """Yield the rows of each shard that has samples, and note its problems, keys and lengths."""
        indexed = index_shards(shards, data_list, layout, is_remote=is_remote)
        bar = tqdm(indexed, "index", len(shards), unit="shard", disable=hides_bar(), leave=False)
        for shard, (shard_lengths, problems) in zip(shards, bar, strict=True):
            bad.extend(problems)
            tar = objects.without_scheme(ShardFiles.parse(shard).tar)
            damage.update((key, reason) for key, reason in problems if key == tar)
            if len(shard_lengths):
                used.append(shard)
                hashes.add(shard_lengths.key_hash)
                lengths.append(shard_lengths)
                yield shard_lengths

    table = shard_table(rows())
    paths = [shard.encode() for shard in used]
    table["paths"] = np.frombuffer(b"".join(paths), dtype=np.uint8)
    table["first_row"] = np.cumsum(table["samples"], dtype=np.int64) - table["samples"]
    table |= lengths.arrays()
    table["path_end"] = np.cumsum([len(path) for path in paths], dtype=np.uint64)

    def key_at(place: Place) -> str:
        rows, _ = index_shard(used[place.shard], data_list, layout)
        return rows.key(place.row)

    unread = {tar: state_of(tar, data_list) for tar in damage}
    warnings = about_damage(damage, len(shards))
    warnings += repeats_in_shards(used, table["digest"], hashes, key_at)
    return ListContents(table, bad, unread, is_remote, warnings)


def about_damage(damage: Mapping[str, str], count: int) -> list[str]:
    """Return a sentence about damaged tars among so many shards; none if there are none.

    Args:
        damage: by the name of the tar.
    """
    if not damage:
        return []

    named = [f"{shown(tar)} {reason}" for tar, reason in itertools.islice(damage.items(), NAMED)]
    return [
        f"{len(damage)} of {count} shards may be damaged ({with_others(named, len(damage))}): "
        "utterances that the damage took are not counted. Make or fetch such a tar again: the next "
        "run indexes it anew"
    ]


def index_shards(
    shards: Sequence[str], data_list: str, layout: Layout, *, is_remote: bool
) -> Iterator[Indexed]:
    """Yield the index of each shard, as `index_shard` does for one; several are made at a time.

    Args:
        is_remote: whether any of the shards is in a remote store. Fewer shards than REQUESTS
            are then read by several requests each.
    """
    workers = REQUESTS if is_remote else min(8, os.cpu_count() or 1)
    requests = max(1, workers // max(1, len(shards)))
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(
            lambda shard: index_shard(shard, data_list, layout, requests=requests), shards
        )


def index_shard(
    shard: str,
    data_list: str,
    layout: Layout,
    compare: Comparison = "pages",
    requests: int = 1,
) -> Indexed:
    """Return the index of one shard of a list; made and kept if it is missing or out of date.

    Args:
        compare: "all" scans the shard and compares; a tar whose index was up to date and wrong is a
            problem (`STALE`).
        requests: most requests at a time for byte ranges of a remote shard.
    """
    files = ShardFiles.parse(shard)
    if files.is_plain:
        return shard_index(shard, kept_folder(data_list), layout, compare)
    return update_kept_index(files, layout, kept_folder(data_list), compare, requests)


def check_shard_files(data_list: str, shards: Sequence[str]) -> None:
    """Raise ListError if a local tar or manifest of the list does not exist."""
    files = dict.fromkeys(path for shard in shards for path in ShardFiles.parse(shard)[:2] if path)
    local = [path for path in files if not objects.is_remote(path)]
    local = [objects.file_of(objects.without_scheme(path)) for path in local]
    missing = [path for path in local if not os.path.isfile(path)]  # noqa: PTH113 - as in `opened_list`
    if missing:
        raise ListError(
            f"{data_list}: {len(missing)} shard(s) not found, the first is {missing[0]}"
        )


def entries_outside(shards: Sequence[str]) -> list[Problem]:
    """Return entries of manifests that belong to tars outside the list, if one manifest describes
    several tars.
    """
    tars = defaultdict(list)
    for shard in map(ShardFiles.parse, shards):
        if shard.shard_id is not None:
            tars[shard.manifest].append(shard.shard_id)

    return [
        problem for manifest, ids in tars.items() for problem in entries_without_tar(manifest, ids)
    ]


def any_remote(shards: Iterable[str]) -> bool:
    """Tell whether the tar of any shard is in a remote store."""
    return any(objects.is_remote(ShardFiles.parse(shard).tar) for shard in shards)


def _current_index(file: LineFile, data_type: DataType, layout: Layout) -> ListIndex | None:
    """Return the index of the current content of an open list, if there is any; of several, the
    first of those that lack least audio. The list then has the digest that was indexed.

    Raises:
        ListError: the list is of the other type.
    """
    indexes: list[ListIndex] = []
    for place in places_of(index_of(file.path, layout)):
        index = ListIndex.find(place)
        if index is None:
            continue

        meta = index.meta
        if meta.get("type") != data_type:
            DataList(file, data_type)  # refuses the other type
        elif file.is_unchanged(FileState(meta["bytes"], meta["mtime_ns"], meta["digest"])):
            indexes.append(index)

    if not indexes:
        return None

    index = min(indexes, key=lambda index: len(index.meta.get("unread", ())))
    file.digest = index.meta["digest"]
    return index
