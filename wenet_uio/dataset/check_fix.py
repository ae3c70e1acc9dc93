"""A data list without what a check found to be lost."""

from __future__ import annotations

import itertools
import json
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from wenet_uio.dataset.check import LOSSES, Report
from wenet_uio.dataset.check_samples import Finding
from wenet_uio.dataset.corpus import Corpus, RawCorpus, ShardCorpus
from wenet_uio.dataset.data_list import ListError
from wenet_uio.dataset.shard import shard_index
from wenet_uio.files import written_aside


def write_clean_list(corpus: Corpus, report: Report, out: str, data_list: str) -> int:
    """Write the list `out`, and `out.left_out.jsonl`: what it leaves out, by key, kind and detail.

    Lines of a raw list are kept as they are. Of a shard list, shards without a loss are kept as they are; those with
    one are copied without it to the folder `out.shards`; broken and empty ones are left out whole.

    Returns:
        how many utterances are left.

    Raises:
        ListError: the list is a mixture, or a raw list of paths relative to a folder that `out` is not in.
    """
    if os.path.abspath(out) == os.path.abspath(data_list):
        raise ListError(f"--fix {out}: is the list itself; name another file")
    losses = [finding for finding in report.findings if finding.kind in LOSSES]
    lost: dict[int, set[int]] = defaultdict(set)
    for finding in losses:
        if finding.place is not None:
            lost[finding.place[0]].add(finding.place[1])
    if isinstance(corpus, RawCorpus):
        if Path(out).parent.resolve() != Path(data_list).parent.resolve():
            raise ListError(f"--fix {out}: put it into the folder of {data_list}, which paths in it may be relative to")
        left = _write_raw(corpus, lost, out)
    elif isinstance(corpus, ShardCorpus):
        left = _write_shards(corpus, lost, out)
    else:
        raise ListError(f"--fix: {data_list} mixes several lists; clean each of them")
    _write_ledger(losses, f"{out}.left_out.jsonl")
    return left


def _write_raw(corpus: RawCorpus, lost: dict[int, set[int]], out: str) -> int:
    left = 0
    with open(corpus.data_list, "rb") as lines, written_aside(out) as file:
        for shard in range(corpus.num_shards):
            rows = corpus.rows(shard)
            for row in range(len(rows)):
                if row in lost[shard]:
                    continue
                lines.seek(int(rows.audio_offset[row]))
                file.write(lines.read(int(rows.audio_size[row])).rstrip(b"\n") + b"\n")
                left += 1
    return left


def _write_shards(corpus: ShardCorpus, lost: dict[int, set[int]], out: str) -> int:
    left, paths = 0, []
    for shard in range(corpus.num_shards):
        path = corpus.path(shard)
        rows, bad = shard_index(path)
        kept = [int(offset) for row, offset in enumerate(rows.audio_offset) if row not in lost[shard]]
        if not kept:
            continue
        if len(kept) < len(rows) or bad:
            copy = Path(f"{out}.shards") / f"{shard:09d}_{Path(path).name}"
            _copy_samples(path, frozenset(kept), copy)
            path = str(copy)
        paths.append(path)
        left += len(kept)
    with written_aside(out, "w") as file:
        file.writelines(f"{path}\n" for path in paths)
    return left


def _copy_samples(path: str, kept: frozenset[int], copy: Path) -> None:
    """Copy the samples whose audio stands at these offsets, with all their members as they are."""
    with (
        tarfile.open(path, "r:") as source,
        written_aside(copy) as file,
        tarfile.open(fileobj=file, mode="w") as target,
    ):
        members = (member for member in source if member.isfile())
        for _, sample in itertools.groupby(members, lambda member: member.name.rpartition(".")[0]):
            sample = list(sample)
            if any(member.offset_data in kept for member in sample):
                for member in sample:
                    target.addfile(member, source.extractfile(member))


def _write_ledger(losses: Iterable[Finding], path: str) -> None:
    with written_aside(path, "w") as file:
        for finding in losses:
            line = {"key": finding.key, "kind": finding.kind, "detail": finding.detail}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
