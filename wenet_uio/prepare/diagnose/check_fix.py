"""Write a data list without the samples and shards that a check found to be lost, and with mended
texts.
"""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from wenet_uio.base.files import written_aside
from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import index_shard
from wenet_uio.dataset.corpus.raw_corpus import RawCorpus
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.formats.data_list import TEXT, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, JSON_TEXT
from wenet_uio.dataset.formats.tar_members import Member, read_members
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.diagnose.findings import CHARACTERS, LOSSES, Finding, Report
from wenet_uio.text.characters import clean, oddities, without_mark

Lost = dict[int, set[int]]
"""Rows to leave out, by shard; a shard without such rows has an empty set."""


@dataclass
class Fixed:
    """What a clean list holds."""

    kept: int = 0
    """Utterances in the list."""
    mended: list[OddText] = field(default_factory=list)
    """Texts that were mended."""
    odd: list[OddText] = field(default_factory=list)
    """Texts of shards that cannot be written; they stay as they are."""


def write_clean_list(corpus: Corpus, report: Report, out: str, data_list: str) -> Fixed:
    """Write the list `out` without lost samples, and with mended texts (`text/characters.py`).

    `out.left_out.jsonl` gets key, kind and detail of each loss. If texts have odd characters,
    `out.texts.jsonl` gets key, kinds, and text before and after of each; `after` is null of a text
    that stays.

    A raw list keeps its other lines unchanged. A shard list keeps its shards without a loss and
    without an odd text; the sound samples of the other shards are copied to the folder
    `out.shards`. Odd texts of shards that are not plain local tars stay.

    Raises:
        ListError: `out` is the checked list; the list is a mixture; a raw list would move to
            another folder; or a shard with a loss is not a plain local tar.
    """
    _check_place(corpus, out, data_list)
    losses = [finding for finding in report.findings if finding.kind in LOSSES]
    lost: Lost = defaultdict(set)
    for finding in losses:
        if finding.place is not None:
            shard, row = finding.place
            lost[shard].add(row)

    if isinstance(corpus, RawCorpus):
        fixed = _write_raw(corpus, lost, out, mends=has_odd_texts(report))
    elif isinstance(corpus, ShardCorpus):
        fixed = _write_shards(corpus, lost, out, mends=has_odd_texts(report))
    else:
        raise ListError(f"--fix: {data_list} mixes several lists; clean each of them")

    _write_ledger(losses, f"{out}.left_out.jsonl")
    if fixed.mended or fixed.odd:
        write_texts_ledger(fixed.mended, fixed.odd, f"{out}.texts.jsonl")

    return fixed


def _check_place(corpus: Corpus, out: str, data_list: str) -> None:
    """Raise ListError if the new list would replace the checked one or lose relative paths."""
    if Path(out).resolve() == Path(data_list).resolve():
        raise ListError(f"--fix {out}: is the list itself; name another file")

    same_folder = Path(out).parent.resolve() == Path(data_list).parent.resolve()
    if isinstance(corpus, RawCorpus) and not same_folder:
        raise ListError(
            f"--fix {out}: put the new list into the folder of {data_list}; paths in the list "
            "may be relative to it"
        )


def _kept_rows(corpus: Corpus, shard: int, lost: Lost) -> list[int]:
    return [row for row in range(len(corpus.rows(shard))) if row not in lost[shard]]


def _write_raw(corpus: RawCorpus, lost: Lost, out: str, *, mends: bool) -> Fixed:
    """Copy the lines of a raw list that are not lost, with mended texts."""
    fixed = Fixed()
    with open(corpus.data_list, "rb") as lines, written_aside(out) as file:
        for shard in range(corpus.num_shards):
            rows = corpus.rows(shard)
            kept = _kept_rows(corpus, shard, lost)
            odd = odd_texts(corpus, shard, kept) if mends else {}
            for row in kept:
                lines.seek(int(rows.audio_offset[row]))
                line = lines.read(int(rows.audio_size[row])).rstrip(b"\n")
                if row in odd:
                    line = mended_line(line, corpus.text_field, odd[row].after)
                file.write(line + b"\n")

            fixed.kept += len(kept)
            fixed.mended += odd.values()

    return fixed


def _write_shards(corpus: ShardCorpus, lost: Lost, out: str, *, mends: bool) -> Fixed:
    """List the shards without a loss and without an odd text, and copies of the others."""
    fixed, lines = Fixed(), []
    for shard in range(corpus.num_shards):
        kept = _kept_rows(corpus, shard, lost)
        if not kept:
            continue

        fixed.kept += len(kept)
        files = corpus.files(shard)
        can_be_copied = files.is_plain and not files.manifest
        odd = odd_texts(corpus, shard, kept) if mends else {}
        if not _is_sound(corpus, shard, lost) or (odd and can_be_copied):
            copy = Path(f"{out}.shards") / f"{shard:09d}_{Path(files.tar).name}"
            _copy_shard(corpus, shard, {row: odd.get(row) for row in kept}, copy)
            fixed.mended += odd.values()
            lines.append(f"{copy}\n")
        else:
            fixed.odd += odd.values()
            lines.append(f"{files}\n")

    with written_aside(out, "w") as file:
        file.writelines(lines)

    return fixed


def _is_sound(corpus: ShardCorpus, shard: int, lost: Lost) -> bool:
    """Tell whether a shard has no lost sample.

    Samples that could not be indexed are not rows, but are to be left out as well.
    """
    if lost[shard]:
        return False
    _, bad = index_shard(str(corpus.files(shard)), corpus.data_list, DEFAULT_LAYOUT)
    return not bad


def _copy_shard(
    corpus: ShardCorpus, shard: int, kept: Mapping[int, OddText | None], copy: Path
) -> None:
    """Copy some samples of a shard.

    Args:
        kept: by row, the text to mend of each sample to copy, if it is odd.

    Raises:
        ListError: the shard is not a plain local tar.
    """
    files, rows = corpus.files(shard), corpus.rows(shard)
    if files.manifest or not files.is_plain:
        raise ListError(
            f"--fix: {files.tar} is remote, compressed or has a manifest: repair the shard at "
            "its source"
        )

    keys = {rows.key(row) for row in range(len(rows))}
    texts = {int(rows.audio_offset[row]): text for row, text in kept.items()}
    _copy_samples(objects.without_scheme(files.tar), keys, texts, copy)


def _copy_samples(
    path: str, keys: set[str], texts: Mapping[int, OddText | None], copy: Path
) -> None:
    """Copy some samples of a tar, each with all its members.

    Args:
        keys: all keys of the tar.
        texts: of each sample to copy, by the offset of its audio, the text to mend, if it is odd.
    """

    def sample_key(member: Member) -> str:
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
        for _, group in itertools.groupby(members, sample_key):
            sample = list(group)
            audio_offsets = [member.offset for member in sample if member.offset in texts]
            if not audio_offsets:
                continue  # a lost sample

            odd_texts_of_sample = [texts[offset] for offset in audio_offsets if texts[offset]]
            text = odd_texts_of_sample[0] if odd_texts_of_sample else None
            for member in sample:
                may_hold_text = member.offset not in audio_offsets
                _copy_member(source, member, target, text if may_hold_text else None)


def _copy_member(
    source: BinaryIO, member: Member, target: tarfile.TarFile, text: OddText | None
) -> None:
    """Copy a member of a tar, with the mended text if it holds `text`."""
    source.seek(member.offset)
    info = tarfile.TarInfo(member.name)
    info.size = member.size
    if text is None:
        target.addfile(info, source)
        return

    content = source.read(member.size)
    mended = mended_member(content, text)
    if mended is not None:
        content = mended
    info.size = len(content)
    target.addfile(info, io.BytesIO(content))


def _write_ledger(losses: Iterable[Finding], path: str) -> None:
    """Write a line of JSON for each loss."""
    with written_aside(path, "w") as file:
        for finding in losses:
            line = {
                "key": shown(finding.key),
                "kind": finding.kind,
                "detail": shown(finding.detail),
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


class OddText(NamedTuple):
    """A text that `clean` changes."""

    key: str
    before: str
    after: str

    def as_dict(self, *, mended: bool) -> dict[str, object]:
        """Return the line of the ledger; `after` is None if the text was not mended."""
        kinds = [oddity.kind for oddity in oddities(self.before)]
        after = self.after if mended else None
        return {"key": self.key, "kinds": kinds, "before": self.before, "after": after}


def odd_texts(corpus: Corpus, shard: int, rows: Iterable[int]) -> dict[int, OddText]:
    """Return the texts of some rows of a shard that `clean` changes, by row."""
    odd: dict[int, OddText] = {}
    keys = corpus.rows(shard)
    for row in rows:
        text = corpus.texts(SampleRef(shard, row)).texts[0]
        after = clean(text)
        if after != text:
            odd[row] = OddText(keys.key(row), text, after)

    return odd


def has_odd_texts(report: Report) -> bool:
    """Tell whether a check found a text that `clean` changes."""
    return any(report.counts[kind] for kind in CHARACTERS)


def mended_line(line: bytes, text_field: str | None, mended: str) -> bytes:
    """Return a line of a raw list with another text, and all its other values.

    Args:
        text_field: names of the text, the preferred one first; None: the usual ones.
    """
    values = values_of(line)
    candidates = tuple(text_field.split(";")) if text_field else TEXT
    field = next(name for name in candidates if name in values)
    return json.dumps({**values, field: mended}, ensure_ascii=False).encode()


def mended_member(data: bytes, text: OddText) -> bytes | None:
    """Return the content of a member of a tar with the mended text; None if the member is not the
    text of the sample.

    The member holds just the text, or a JSON object in which one of JSON_TEXT is the text.
    """
    try:
        content = without_mark(data.decode())
    except UnicodeDecodeError:
        return None

    if content == text.before:
        return text.after.encode()

    values = _parse_object(content)
    changed: dict[str, str] = {}
    for name in JSON_TEXT:
        value = values.get(name)
        if isinstance(value, str) and without_mark(value) == text.before:
            changed[name] = text.after

    if not changed:
        return None
    return json.dumps({**values, **changed}, ensure_ascii=False).encode()


def _parse_object(content: str) -> dict[str, object]:
    """Return the JSON object that a text is; an empty one if it is none."""
    if not content.lstrip().startswith("{"):
        return {}
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return {}


def write_texts_ledger(mended: Iterable[OddText], kept: Iterable[OddText], path: str) -> None:
    """Write key, kinds, and text before and after of all odd texts as lines of JSON.

    Args:
        kept: texts that could not be mended.
    """
    with written_aside(path, "w") as file:
        for texts, is_mended in ((mended, True), (kept, False)):
            for text in texts:
                file.write(json.dumps(text.as_dict(mended=is_mended)) + "\n")
