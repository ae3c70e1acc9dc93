"""Write data lists of pseudo labels: the list to recognise, and the list with the labels.

A raw list stays a raw list. Tars of a shard list are not changed: each gets a manifest in the form
of NeMo, which has the texts. So labelling again writes no audio.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from wenet_uio.addons.corpora.pseudo_labels import (
    Choice,
    Limits,
    Speech,
    Spelling,
    choose_labels,
    read_labels,
)
from wenet_uio.base.files import written_aside
from wenet_uio.config.mixture import load_mixture
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.raw_corpus import RawCorpus
from wenet_uio.dataset.corpus.shard_corpus import ShardCorpus
from wenet_uio.dataset.formats.data_list import (
    AUDIO,
    TEXT,
    DataType,
    ShardFiles,
    locate,
    read_shard_list,
    values_of,
)
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import as_word
from wenet_uio.dataset.formats.sample_layout import is_audio, split_name
from wenet_uio.dataset.formats.tar_members import read_members
from wenet_uio.dataset.storage import objects

_NO_LABEL = "pseudo label: "
"""Begins the reason of `_skipme` in the manifest of a tar."""


def write_unlabelled(data_list: str, data_type: DataType, out: str, part_lines: int = 0) -> None:
    """Write a copy of a list in which every utterance has an empty text.

    Texts that a raw list or the tars of a shard list have are not copied. A tar with a manifest
    stays as it is. Of a tar without one, each member that is audio is an utterance; its key ends at
    the last dot of its name.

    Args:
        data_list: the list; its texts, if it has any, are not used.
        data_type: type of both lists.
        out: the list to write.
        part_lines: write `out.parts/0000.list` and so on too, lists of at most this many lines,
            that together have each line once; 0: no parts. Lines of a raw list without usable audio
            are in no part.

    Raises:
        ListError, OSError: the list cannot be read.
        ValueError: `part_lines` is negative.
    """
    if part_lines < 0:
        raise ValueError(f"part_lines: expected 0 or more, found {part_lines}")

    write = {"raw": _raw_without_texts, "shard": _shards_without_texts}[data_type]
    lines = list(write(data_list, out))
    if not lines:
        raise ListError(f"{data_list}: the list is empty")

    parts, aside = Path(f"{out}.parts"), Path(f"{out}.parts.tmp")
    for folder in (parts, aside):
        if folder.exists():
            shutil.rmtree(folder)

    _write_lines(out, lines)
    if not part_lines:
        return

    if data_type == "raw":
        corpus = open_list(out, data_type)
        assert isinstance(corpus, RawCorpus)
        lines = list(_usable_lines(corpus))

    count = -(-len(lines) // part_lines)
    for part in range(count):
        # Every count-th line: all parts take about equally long, also of a list sorted by length.
        _write_lines(aside / f"{part:04d}.list", lines[part::count])

    aside.replace(parts)


def _usable_lines(corpus: RawCorpus) -> Iterator[str]:
    """Yield the lines of the utterances in the index."""
    with Path(corpus.data_list).open("rb") as lines:
        for rows in map(corpus.rows, range(corpus.num_shards)):
            for row in range(len(rows)):
                lines.seek(int(rows.audio_offset[row]))
                yield lines.read(int(rows.audio_size[row])).decode().strip()


def _write_lines(path: str | Path, lines: Iterable[str]) -> None:
    with written_aside(path, "w") as file:
        file.writelines(f"{line}\n" for line in lines)


def _raw_without_texts(data_list: str, _out: str) -> Iterator[str]:
    """Yield the lines of a raw list with empty texts and absolute paths."""
    for number, line in enumerate(Path(data_list).read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue

        try:
            values = values_of(line)
        except ListError as error:
            raise ListError(f"{data_list}:{number}: {error}") from None

        values = {name: value for name, value in values.items() if name not in TEXT}
        for name in AUDIO:
            if isinstance(values.get(name), str):
                wav = locate(values[name], data_list)
                if not objects.is_remote(wav):
                    wav = os.path.abspath(wav)  # noqa: PTH100 - resolve() would follow links
                values[name] = wav

        yield json.dumps(values | {"txt": ""}, ensure_ascii=False)


def _shards_without_texts(data_list: str, out: str) -> Iterator[str]:
    """Yield the lines of a shard list, in which each tar has a manifest."""
    for number, files in enumerate(map(ShardFiles.parse, read_shard_list(data_list))):
        if files.manifest:
            yield str(files)
            continue

        with objects.held_path(files.tar) as path:
            members, _ = read_members(path, files.tar)

        entries = []
        for member in members:
            key, suffix = split_name(member.name, "last")
            if is_audio(suffix):
                entries.append({"key": as_word(key), "audio_filepath": member.name, "text": ""})

        yield _write_manifest(files.tar, entries, _manifest_path(out, number))


def _manifest_path(out: str, number: int) -> Path:
    """Return the manifest of a shard of the list `out`."""
    return Path(f"{out}.texts", f"{number:09d}.json")


def _write_manifest(tar: str, entries: list[dict[str, Any]], manifest: Path) -> str:
    """Write the manifest of a tar; return the line of the shard list."""
    with written_aside(manifest, "w") as file:
        file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    return f"{tar}\t{manifest}"


def write_labelled(
    data_list: str,
    data_type: DataType,
    results: str | Path,
    limits: Limits,
    out: str,
    *,
    second: str | Path | None = None,
    spelling: Spelling = Spelling(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Write the list `out` of the utterances whose recognised text is inside the limits.

    `out.left_out.jsonl` has key, reason and detail of every other utterance. `out.json`, written
    last, has the counts.

    Args:
        data_list: written by `write_unlabelled`, and recognised.
        results: folder of one decode mode of the recognition.
        second: folder of one decode mode of a second model.
        spelling: how the texts are written.

    Returns:
        the counts, as in `out.json`.

    Raises:
        ListError: the list cannot be read, or no utterance is left.
        ValueError, OSError: see `read_labels` and `choose_labels`.
    """
    corpus = open_list(data_list, data_type)
    labels = read_labels(results)
    second_labels = None if second is None else read_labels(second)
    choice = choose_labels(_list_speech(corpus), labels, limits, second_labels, spelling)
    counts = _count_labels(corpus, choice) | {
        "limits": asdict(limits),
        "spelling": asdict(spelling),
    }
    _write_left_out(corpus, choice, f"{out}.left_out.jsonl")

    if not choice.texts:
        reasons = ", ".join(
            f"{reason} {count['utterances']}" for reason, count in counts["left_out"].items()
        )
        raise ListError(
            f"{data_list}: no utterance gets a label ({reasons}); see {out}.left_out.jsonl, widen "
            "a limit"
        )

    is_raw = isinstance(corpus, RawCorpus)
    lines = _raw_lines(corpus, choice) if is_raw else _shard_lines(corpus, choice, out)
    _write_lines(out, lines)
    _write_lines(f"{out}.json", [json.dumps(counts, ensure_ascii=False, indent=2)])

    return counts


def _list_speech(corpus: Corpus) -> list[Speech]:
    """Return key and length of each utterance of the index."""
    utterances = []
    for rows in map(corpus.rows, range(corpus.num_shards)):
        utterances += [Speech(rows.key(row), float(rows.seconds[row])) for row in range(len(rows))]

    return utterances


def _count_labels(corpus: Corpus, choice: Choice) -> dict[str, Any]:
    """Return utterances and seconds of the list, of the labels, and of each reason."""
    kept_seconds = 0.0
    left_out: Counter[str] = Counter()
    if corpus.bad:
        left_out["not_indexed"] = len(corpus.bad)
    left_out_seconds: defaultdict[str, float] = defaultdict(float)
    for key, seconds in _list_speech(corpus):
        if key in choice.texts:
            kept_seconds += seconds
        else:
            reason = choice.left_out[key].reason
            left_out[reason] += 1
            left_out_seconds[reason] += seconds

    return {
        "utterances": corpus.num_samples + len(corpus.bad),
        "seconds": round(corpus.total_seconds, 3),
        "kept": {
            "utterances": len(choice.texts),
            "seconds": round(kept_seconds, 3),
            "characters": sum(map(len, choice.texts.values())),
            "changed_texts": choice.changed,
        },
        "left_out": {
            reason: {"utterances": count, "seconds": round(left_out_seconds[reason], 3)}
            for reason, count in sorted(left_out.items())
        },
    }


def _write_left_out(corpus: Corpus, choice: Choice, path: str) -> None:
    """Write key, reason and detail of each utterance without a label."""
    left_out = [(key, "not_indexed", reason) for key, reason in corpus.bad]
    left_out += [(key, reason, detail) for key, (reason, detail) in choice.left_out.items()]
    with written_aside(path, "w") as file:
        for key, reason, detail in left_out:
            record = {"key": key, "reason": reason, "detail": detail}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _raw_lines(corpus: RawCorpus, choice: Choice) -> Iterator[str]:
    """Yield the lines of the utterances with a label, with the label as their text."""
    with Path(corpus.data_list).open("rb") as lines:
        for rows in map(corpus.rows, range(corpus.num_shards)):
            for row in range(len(rows)):
                key = rows.key(row)
                if key not in choice.texts:
                    continue

                lines.seek(int(rows.audio_offset[row]))
                values = values_of(lines.read(int(rows.audio_size[row])))
                values |= {"key": key, "txt": choice.texts[key]}
                yield json.dumps(values, ensure_ascii=False)


def _shard_lines(corpus: Corpus, choice: Choice, out: str) -> Iterator[str]:
    """Write a manifest for each tar with a label; yield the lines of these tars."""
    assert isinstance(corpus, ShardCorpus)
    for shard in range(corpus.num_shards):
        entries = [_manifest_entry(record, choice) for record in _sample_records(corpus, shard)]
        if any("_skipme" not in entry for entry in entries):
            yield _write_manifest(corpus.files(shard).tar, entries, _manifest_path(out, shard))


def _sample_records(corpus: ShardCorpus, shard: int) -> Iterator[list[Any]]:
    """Yield the record of each sample of a shard with a manifest.

    A record is [text, start, end, other fields, key, audio member].
    """
    rows = corpus.rows(shard)
    if rows.records is None:
        raise ListError(
            f"{corpus.files(shard)}: has no manifest; give the list that was made for decoding"
        )
    for first, size in zip(rows.text_offset, rows.text_size, strict=True):
        yield json.loads(bytes(rows.records[int(first) : int(first + size)]))


def _manifest_entry(record: list[Any], choice: Choice) -> dict[str, Any]:
    """Return the entry of a manifest for one sample; `_skipme` says why the sample has no label."""
    _, start, end, extra, key, member = record
    entry = {**extra, "key": key, "audio_filepath": member, "text": choice.texts.get(key, "")}
    entry.pop("shard_id", None)  # each tar has a manifest of its own
    if start or end is not None:
        entry["offset"] = start
    if end is not None:
        entry["duration"] = end - start
    if key not in choice.texts:
        entry["_skipme"] = _NO_LABEL + choice.left_out[key].reason

    return entry


def write_mixture(
    labelled: str, pseudo: str, data_type: DataType, out: str, share: float | None = None
) -> None:
    """Write a mixture of a list with transcripts and a list of pseudo labels.

    The list with transcripts may be a mixture itself.

    Args:
        labelled: a list of the type `data_type`, or a yaml file of sources.
        share: part of the utterances of an epoch that come from `labelled`, above 0 and below 1;
            None: each list in proportion to its utterances.

    Raises:
        ValueError: share is out of bounds.
        OSError, ConfigError: a list is missing, or the yaml file cannot be used.
    """
    if share is not None and not 0 < share < 1:
        raise ValueError(
            "share of the labelled utterances: expected a number above 0 and below 1, found "
            f"{share}"
        )

    sources: list[dict[str, Any]] = [
        {"type": data_type, "data_list": labelled},
        {"type": data_type, "data_list": pseudo},
    ]
    if Path(labelled).suffix in (".yaml", ".yml"):
        load_mixture(labelled)
        sources[0] = {"type": "group", "input_cfg": labelled}

    for path in (labelled, pseudo):
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such data list")

    if share is not None:
        sources[0]["weight"] = share
        sources[1]["weight"] = round(1 - share, 9)

    with written_aside(out, "w") as file:
        file.write(yaml.safe_dump(sources, sort_keys=False, allow_unicode=True))
