"""Compare the shards of a list with the index of the list."""

from __future__ import annotations

import numpy as np

from wenet_uio.base.files import digest_of
from wenet_uio.dataset.corpus.columns import find_columns
from wenet_uio.dataset.corpus.indexing import index_of, index_shard
from wenet_uio.dataset.formats.data_list import ShardFiles
from wenet_uio.dataset.formats.sample_layout import Layout
from wenet_uio.dataset.storage.kept_files import places_of
from wenet_uio.prepare.diagnose.findings import Finding


def changed_shards(data_list: str, layout: Layout) -> list[Finding]:
    """Find shards that were packed anew since their list was indexed, with other samples.

    Damaged shards, and lists that changed since they were indexed, are left to other checks.
    """
    indexes = (find_columns(path) for path in places_of(index_of(data_list, layout)))
    columns, meta = next(filter(None, indexes), ({}, {}))
    if meta.get("type") != "shard" or meta["digest"] != digest_of(data_list):
        return []

    # The paths of all shards are one text; `ends` has the end of each.
    ends = columns["path_end"].astype(np.int64).tolist()
    starts = [0, *ends][:-1]
    paths = columns["paths"].tobytes()
    findings = []

    for start, end, digest, samples in zip(
        starts, ends, columns["digest"], columns["samples"], strict=True
    ):
        shard = paths[start:end].decode()
        try:
            rows, bad = index_shard(shard, data_list, layout)
        except (OSError, ValueError):
            continue

        if rows.digest() != int(digest) and not bad:
            detail = f"{samples} samples when the list was indexed, {len(rows)} now, not the same"
            findings.append(Finding("changed_shard", ShardFiles.parse(shard).tar, detail))

    return findings
