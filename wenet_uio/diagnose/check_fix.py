"""Write a data list without the samples and shards that a check found to be lost."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.indexing import index_shard
from wenet_uio.dataset.corpus.raw_corpus import RawCorpus
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT
from wenet_uio.dataset.formats.tar_members import Member, read_members
from wenet_uio.dataset.storage import objects
from wenet_uio.diagnose.findings import LOSSES, Finding, Report
from wenet_uio.files import written_aside
from wenet_uio.uris import shown

Lost = dict[int, set[int]]
"""Rows to leave out, by shard; a shard without such rows has an empty set."""


def write_clean_list(corpus: Corpus, report: Report, out: str, data_list: str) -> int:
    """Write the list `out` without lost samples.

    `out.left_out.jsonl` gets key, kind and detail of each loss.

    A raw list keeps its other lines unchanged. A shard list keeps its shards without a loss; the
    sound samples of the other shards are copied to the folder `out.shards`.

    Returns:
        the number of utterances in `out`.

    Raises:
        ListError: `out` is the checked list; the list is a mixture; a raw list would move to
            another folder; or a shard with a loss is not a plain local tar.
    """
    if Path(out).resolve() == Path(data_list).resolve():
        raise ListError(f"--fix {out}: is the list itself; name another file")

    losses = [finding for finding in report.findings if finding.kind in LOSSES]
    lost: Lost = defaultdict(set)
    for finding in losses:
        if finding.place is not None:
            lost[finding.place[0]].add(finding.place[1])

    if isinstance(corpus, RawCorpus):
        if Path(out).parent.resolve() != Path(data_list).parent.resolve():
            raise ListError(
                f"--fix {out}: put the new list into the folder of {data_list}; paths in the list "
                "may be relative to it"
            )
        kept = _write_raw(corpus, lost, out)
    elif isinstance(corpus, ShardCorpus):
        kept = _write_shards(corpus, lost, out)
    else:
        raise ListError(f"--fix: {data_list} mixes several lists; clean each of them")

    _write_ledger(losses, f"{out}.left_out.jsonl")
    return kept


def _write_raw(corpus: RawCorpus, lost: Lost, out: str) -> int:
    """Copy the lines of a raw list that are not lost; return their number."""
    kept = 0
    with open(corpus.data_list, "rb") as lines, written_aside(out) as file:
        for shard in range(corpus.num_shards):
            rows = corpus.rows(shard)
            for row in range(len(rows)):
                if row in lost[shard]:
                    continue

                lines.seek(int(rows.audio_offset[row]))
                file.write(lines.read(int(rows.audio_size[row])).rstrip(b"\n") + b"\n")
                kept += 1

    return kept


def _write_shards(corpus: ShardCorpus, lost: Lost, out: str) -> int:
    """List the shards without a loss and copies of the others; return the kept utterances."""
    count_kept, lines = 0, []
    for shard in range(corpus.num_shards):
        files = corpus.files(shard)
        rows = corpus.rows(shard)
        kept_offsets = {
            int(offset) for row, offset in enumerate(rows.audio_offset) if row not in lost[shard]
        }
        if not kept_offsets:
            continue

        count_kept += len(rows) - len(lost[shard])
        # Samples that could not be indexed are not rows, but are to be left out as well.
        if not lost[shard] and not index_shard(str(files), corpus.data_list, DEFAULT_LAYOUT)[1]:
            lines.append(f"{files}\n")
            continue

        if files.manifest or not files.is_plain:
            raise ListError(
                f"--fix: {files.tar} is remote, compressed or has a manifest: repair the shard at "
                "its source"
            )

        copy = Path(f"{out}.shards") / f"{shard:09d}_{Path(files.tar).name}"
        keys = {rows.key(row) for row in range(len(rows))}
        _copy_samples(objects.without_scheme(files.tar), keys, kept_offsets, copy)
        lines.append(f"{copy}\n")

    with written_aside(out, "w") as file:
        file.writelines(lines)

    return count_kept


def _copy_samples(path: str, keys: set[str], kept_offsets: set[int], copy: Path) -> None:
    """Copy some samples of a tar, each with all its members.

    Args:
        keys: all keys of the tar.
        kept_offsets: offsets of the audio of the samples to copy.
    """

    def key_of(member: Member) -> str:
        # A key may contain dots itself, so that the first dot need not end it.
        key = member.name
        while "." in key and as_word(key) not in keys:
            key = key.rpartition(".")[0]
        return key

    members, _ = read_members(path)
    with (
        open(path, "rb") as source,
        written_aside(copy) as file,
        tarfile.open(fileobj=file, mode="w") as target,
    ):
        for _, group in itertools.groupby(members, key_of):
            sample = list(group)
            if all(member.offset not in kept_offsets for member in sample):
                continue

            for member in sample:
                source.seek(member.offset)
                info = tarfile.TarInfo(member.name)
                info.size = member.size
                target.addfile(info, source)


def _write_ledger(losses: Iterable[Finding], path: str) -> None:
    with written_aside(path, "w") as file:
        for finding in losses:
            line = {
                "key": shown(finding.key),
                "kind": finding.kind,
                "detail": shown(finding.detail),
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
