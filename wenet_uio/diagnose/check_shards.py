"""The part of a check that looks at whole shards: open a list although some of its shards are broken."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.indexing import check_type, index_shard
from wenet_uio.dataset.formats.data_list import DataType, ListError, ShardFiles, split_shard_list
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.ledger import NOT_INDEXED
from wenet_uio.dataset.open import MIXTURE_SUFFIXES, open_corpus
from wenet_uio.diagnose.check_changes import changed_shards
from wenet_uio.diagnose.findings import Finding


@contextmanager
def opened_for_check(data_list: str, data_type: DataType) -> Iterator[tuple[Corpus, list[Finding]]]:
    """Open a list or mixture as a corpus without its broken shards.

    Yields:
        the corpus, and findings for broken and empty shards and for samples that could not be indexed.

    Raises:
        ListError: there is no such list, or no shard of the list can be read.
    """
    if data_type == "raw" or Path(data_list).suffix in MIXTURE_SUFFIXES:
        corpus = open_corpus(data_list, data_type)
        yield corpus, [Finding(NOT_INDEXED, key, reason) for key, reason in corpus.bad]
        return
    shards, bad_lines = _shards_of(data_list)
    found = _check_shards(shards, data_list)
    changed = changed_shards(data_list)
    with tempfile.TemporaryDirectory() as folder:
        opened = data_list
        if changed or any(finding.kind == "broken_shard" for finding in found.values()):
            opened = f"{folder}/whole.list"
            whole = "".join(f"{shard}\n" for shard in shards if shard not in found)
            if not whole:
                first = next(iter(found.values()))
                raise ListError(f"{data_list}: none of its shards can be read ({first.key}: {first.detail})")
            Path(opened).write_text(whole, encoding="utf-8")
        corpus = open_corpus(opened, data_type)
        tars = {ShardFiles.parse(shard).tar for shard in shards}
        kinds = ("broken_shard" if key in tars else NOT_INDEXED for key, _ in corpus.bad)
        not_indexed = [Finding(kind, *bad) for kind, bad in zip(kinds, corpus.bad, strict=True)]
        if opened != data_list:
            not_indexed += [Finding(NOT_INDEXED, *bad) for bad in bad_lines]
        yield corpus, [*found.values(), *changed, *not_indexed]


def _shards_of(data_list: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The shards of a list, and (place, reason) of its bad lines."""
    if not Path(data_list).is_file():
        raise ListError(f"{data_list}: no such data list")
    check_type(data_list, "shard")
    return split_shard_list(data_list)


def _check_shards(shards: list[str], data_list: str) -> dict[str, Finding]:
    """Find shards that are missing, unreadable or empty."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = pool.map(lambda shard: _check_shard(shard, data_list), shards)
        return {shard: finding for shard, finding in zip(shards, found, strict=True) if finding}


def _check_shard(shard: str, data_list: str) -> Finding | None:
    """Report a shard that is missing, unreadable or empty. The index reports the bad samples of other shards."""
    tar = ShardFiles.parse(shard).tar
    try:
        rows, bad = index_shard(shard, data_list, DEFAULT_LAYOUT)
    except OSError as error:
        return Finding("broken_shard", tar, error.strerror or str(error))
    return None if len(rows) or bad else Finding("empty_shard", tar, "contains no sample")
