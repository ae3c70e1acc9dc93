"""A data list without what a check found to be lost."""

from __future__ import annotations

import itertools
import json
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.indexing import index_shard
from wenet_uio.dataset.corpus.raw_corpus import RawCorpus
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.formats.tar_members import Member, read_members
from wenet_uio.dataset.storage import objects
from wenet_uio.diagnose.check import LOSSES, Report
from wenet_uio.diagnose.check_samples import Finding
from wenet_uio.files import written_aside


def write_clean_list(corpus: Corpus, report: Report, out: str, data_list: str) -> int:
    """Write the list `out`, and `out.left_out.jsonl`: what it leaves out, by key, kind and detail.

    Lines of a raw list are kept as they are. Of a shard list, shards without a loss are kept as they are; what is sound
    of the others is copied to the folder `out.shards`.

    Returns:
        how many utterances are left.

    Raises:
        ListError: the list is a mixture, or a raw list of another folder than `out`, or a shard with a loss is no plain
            local tar.
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
    left, lines = 0, []
    for shard in range(corpus.num_shards):
        files = corpus.files(shard)
        rows = corpus.rows(shard)
        kept = {int(offset) for row, offset in enumerate(rows.audio_offset) if row not in lost[shard]}
        if not kept:
            continue
        left += len(rows) - len(lost[shard])
        if not lost[shard] and not index_shard(str(files), corpus.data_list, DEFAULT_LAYOUT)[1]:
            lines.append(f"{files}\n")
            continue
        if files.manifest or not files.is_plain:
            raise ListError(f"--fix: {files.tar} is remote, packed or has a manifest; mend it where it comes from")
        copy = Path(f"{out}.shards") / f"{shard:09d}_{Path(files.tar).name}"
        _copy_samples(objects.without_scheme(files.tar), {rows.key(row) for row in range(len(rows))}, kept, copy)
        lines.append(f"{copy}\n")
    with written_aside(out, "w") as file:
        file.writelines(lines)
    return left


def _copy_samples(path: str, keys: set[str], kept: set[int], copy: Path) -> None:
    """Copy the samples whose audio stands at these offsets, with all their members, of a tar with samples `keys`."""

    def key_of(member: Member) -> str:
        key = member.name
        while "." in key and key not in keys:
            key = key.rpartition(".")[0]
        return key

    members, _ = read_members(path)
    with open(path, "rb") as source, written_aside(copy) as file, tarfile.open(fileobj=file, mode="w") as target:
        for _, sample in itertools.groupby(members, key_of):
            sample = list(sample)
            if all(member.offset not in kept for member in sample):
                continue
            for member in sample:
                source.seek(member.offset)
                info = tarfile.TarInfo(member.name)
                info.size = member.size
                target.addfile(info, source)


def _write_ledger(losses: Iterable[Finding], path: str) -> None:
    with written_aside(path, "w") as file:
        for finding in losses:
            line = {"key": finding.key, "kind": finding.kind, "detail": finding.detail}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
