"""Check whole shards, find those that changed since their list was indexed, and open a list although
some of its shards are broken.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wenet_uio.base.files import digest_of
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import ListIndex, Problem, find_index
from wenet_uio.dataset.corpus.open_list import (
    ListSource,
    build_index,
    ensure_index,
    index_of,
    index_shard,
)
from wenet_uio.dataset.corpus.shard_index import STALE, sidecar_of
from wenet_uio.dataset.formats.data_list import DataType, ShardFiles, split_shard_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.list_file import read_shards
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.ledger import NOT_INDEXED
from wenet_uio.dataset.open import MixtureSource, open_corpus, open_source, read_source
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import making, places_of
from wenet_uio.prepare.diagnose.findings import Finding

MISSING = "in a shard that is missing"
"""Reason of the samples that the index of a missing shard has."""


@contextmanager
def opened_for_check(data_list: str, data_type: DataType) -> Iterator[tuple[Corpus, list[Finding]]]:
    """Open a list or mixture as a corpus without its broken shards.

    Yields:
        the corpus, and findings for broken and empty shards and for samples that could not be
        indexed.

    Raises:
        ListError: there is no such list, or no shard of the list can be read.
    """
    source = read_source(data_list, data_type)
    if isinstance(source, MixtureSource):
        findings = _check_lists(source.lists())
        corpus = open_source(source)
        yield corpus, findings + _bad_findings(corpus, [])
        return

    if data_type == "raw":
        corpus = open_source(source)
        yield corpus, _bad_findings(corpus, [])
        return

    shards, bad_lines = read_shards(data_list)
    checked = _check_shards(shards, data_list, DEFAULT_LAYOUT)
    changed = changed_shards(data_list, DEFAULT_LAYOUT)
    findings = _shard_findings(checked, changed)

    with tempfile.TemporaryDirectory() as folder:
        opened_list = data_list
        if changed or any(shard.is_broken for shard in checked):
            # Another list, so that the index of the checked one stays as it is.
            opened_list = f"{folder}/whole.list"
            _write_whole_shards(opened_list, shards, checked, data_list)
            findings += [Finding(NOT_INDEXED, *bad) for bad in bad_lines]
        else:
            _update_index(data_list, DEFAULT_LAYOUT, checked)

        corpus = open_corpus(opened_list, data_type)
        yield corpus, findings + _bad_findings(corpus, shards)


def _write_whole_shards(
    path: str, shards: list[str], checked: list[_Checked], data_list: str
) -> None:
    """Write a list of the shards that can be read.

    Raises:
        ListError: there are none.
    """
    whole = [shard for shard, result in zip(shards, checked, strict=True) if not result.is_broken]
    if not whole:
        first = checked[0].findings[0]
        raise ListError(
            f"{data_list}: none of its shards can be read ({first.key}: {first.detail})"
        )

    Path(path).write_text("\n".join(whole), encoding="utf-8")


def _bad_findings(corpus: Corpus, shards: list[str]) -> list[Finding]:
    """Return findings for samples that could not be indexed, and for damaged shards."""
    tars = {ShardFiles.parse(shard).tar for shard in shards}
    return [
        Finding("broken_shard" if key in tars else NOT_INDEXED, key, reason)
        for key, reason in corpus.bad
    ]


class _Checked(NamedTuple):
    """What the check of one shard found."""

    findings: list[Finding]
    """Without those for bad samples, which are in the index."""
    is_broken: bool = False
    """Whether the shard cannot be read at all."""
    digest: int | None = None
    """Of the samples in the shard; None if there are none."""
    bad: Sequence[Problem] = ()
    """Samples that cannot be used, as in the index."""


def _check_lists(lists: Iterable[ListSource]) -> list[Finding]:
    """Scan the shards of all shard lists of a mixture.

    Returns:
        findings for missing shards and for wrong indexes.
    """
    findings: list[Finding] = []
    for data_list, data_type, layout in lists:
        if data_type == "shard":
            checked = _check_shards(split_shard_list(data_list)[0], data_list, layout)
            findings += _shard_findings(checked, changed_shards(data_list, layout))
            _update_index(data_list, layout, checked)

    return findings


def _shard_findings(checked: list[_Checked], changed: list[Finding]) -> list[Finding]:
    """Return findings for shards.

    A shard whose list was indexed with other samples is "changed"; a finding about its own index
    would say the same again.
    """
    changed_keys = {finding.key for finding in changed}
    kept: list[Finding] = []
    for shard in checked:
        for finding in shard.findings:
            if finding.kind != "stale_index" or finding.key not in changed_keys:
                kept.append(finding)

    return kept + changed


def _check_shards(shards: list[str], data_list: str, layout: Layout) -> list[_Checked]:
    """Scan all shards, and compare them with their indexes."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda shard: _check_shard(shard, data_list, layout), shards))


def _check_shard(shard: str, data_list: str, layout: Layout) -> _Checked:
    """Report a shard that is missing, unreadable, empty or not as indexed.

    A wrong index is made again.
    """
    files = ShardFiles.parse(shard)
    try:
        rows, bad = index_shard(shard, data_list, layout, "all")
    except OSError as error:
        broken = Finding("broken_shard", files.tar, error.strerror or str(error))
        return _Checked([broken, *_lost_samples(files)], is_broken=True)

    findings = [Finding("stale_index", key, reason) for key, reason in bad if reason == STALE]
    bad = [problem for problem in bad if problem[1] != STALE]
    if not len(rows) and not bad:
        findings.append(Finding("empty_shard", files.tar, "contains no sample"))

    return _Checked(findings, digest=rows.digest() if len(rows) else None, bad=bad)


def _lost_samples(files: ShardFiles) -> list[Finding]:
    """Return findings for the samples in the index of a local shard that is missing."""
    index = find_index(sidecar_of(objects.without_scheme(files.tar), files.manifest))
    if objects.is_remote(files.tar) or index is None:
        return []
    return [Finding(NOT_INDEXED, index.rows.key(row), MISSING) for row in range(len(index.rows))]


def _update_index(data_list: str, layout: Layout, checked: list[_Checked]) -> None:
    """Make the index of a list again if it does not fit the shards of the list.

    It does not fit if it has other samples, or lacks a bad sample that the check has.
    """
    # A broken shard has its finding, and no digest that could be compared.
    if any(shard.is_broken for shard in checked):
        return

    # ensure_index compares the type and content of the list only; here its shards are compared.
    index = ensure_index(data_list, "shard", layout)
    digests = [shard.digest for shard in checked if shard.digest is not None]
    known_bad = set(index.bad)
    bad: set[Problem] = set()
    for shard in checked:
        bad.update(shard.bad)

    if index.columns["digest"].tolist() != digests or bad - known_bad:
        with making(places_of(index_of(data_list, layout))):
            build_index(data_list, "shard", layout=layout)


def changed_shards(data_list: str, layout: Layout) -> list[Finding]:
    """Find shards that were packed anew since their list was indexed, with other samples.

    Damaged shards, and lists that changed since they were indexed, are left to other checks.
    """
    indexes = map(ListIndex.find, places_of(index_of(data_list, layout)))
    index = next(filter(None, indexes), None)
    if index is None or index.meta.get("type") != "shard":
        return []
    if index.meta["digest"] != digest_of(data_list):
        return []

    # The paths of all shards are one text, of which the index has the end of each path.
    columns = index.columns
    paths = columns["paths"].tobytes()
    start = 0
    findings: list[Finding] = []
    for number, end in enumerate(columns["path_end"].astype(np.int64).tolist()):
        shard = paths[start:end].decode()
        start = end
        try:
            rows, bad = index_shard(shard, data_list, layout)
        except (OSError, ValueError):
            continue

        if rows.digest() != int(columns["digest"][number]) and not bad:
            samples = columns["samples"][number]
            detail = f"{samples} samples when the list was indexed, {len(rows)} now, not the same"
            findings.append(Finding("changed_shard", ShardFiles.parse(shard).tar, detail))

    return findings
