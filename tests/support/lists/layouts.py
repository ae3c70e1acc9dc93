"""Write a corpus in each layout: lists, tables, texts beside audio, tars, parquet, Lhotse's cuts."""

from __future__ import annotations

import csv
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.support.data.parquet import write_table
from tests.support.data.tars import wav
from tests.support.lists.oddities import Oddity


def write_audio(folder: Path, oddity: Oddity) -> dict[float, Path]:
    """Write the recordings; one that has the name of another lies in a folder of its own.

    Returns: the path of each recording, by its seconds: names may be equal.
    """
    audio = folder / "audio"
    audio.mkdir()
    places: dict[float, Path] = {}
    for spoken in oddity.corpus:
        place = audio / f"{spoken.name}.wav"
        if place in places.values():
            place = audio / "again" / place.name
            place.parent.mkdir()
        places[spoken.seconds] = place
        if spoken.is_there:
            place.write_bytes(wav(spoken.seconds))

    oddity.of_folder(audio)
    return places


def write_lines(path: Path, oddity: Oddity, lines: list[str]) -> str:
    path.write_bytes(oddity.of_tables("".join(f"{line}\n" for line in lines).encode()))
    return str(path)


def raw(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    lines = [
        json.dumps(
            {
                "key": spoken.name,
                "wav": str(places[spoken.seconds]),
                "txt": spoken.text,
                **spoken.fields,
            },
            ensure_ascii=False,
        )
        for spoken in oddity.corpus
    ]
    return write_lines(folder / "data.list", oddity, lines)


def nemo(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    lines = [
        json.dumps(
            {
                "audio_filepath": os.path.relpath(places[spoken.seconds], folder),
                "duration": spoken.seconds,
                "text": spoken.text,
                **spoken.fields,
            }
        )
        for spoken in oddity.corpus
    ]
    return write_lines(folder / "manifest.json", oddity, lines)


def kaldi(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    tables = folder / "tables"
    tables.mkdir()
    for name, value_of in (
        ("wav.scp", lambda spoken: str(places[spoken.seconds])),
        ("text", lambda spoken: spoken.text),
    ):
        lines = [f"{spoken.name} {value_of(spoken)}" for spoken in oddity.corpus]
        write_lines(tables / name, oddity, lines)
    return str(tables)


def segments(folder: Path, oddity: Oddity) -> str:
    """One table more: each utterance is the whole of its recording but for 50 ms."""
    tables = kaldi(folder, oddity)
    names = [f"{spoken.name}-seg" for spoken in oddity.corpus]
    lines = [
        f"{name} {spoken.name} 0.05 {spoken.seconds}"
        for name, spoken in zip(names, oddity.corpus, strict=True)
    ]
    write_lines(Path(tables, "segments"), oddity, lines)
    texts = [f"{name} {spoken.text}" for name, spoken in zip(names, oddity.corpus, strict=True)]
    write_lines(Path(tables, "text"), oddity, texts)
    return tables


def separated(delimiter: str, suffix: str) -> Callable[[Path, Oddity], str]:
    def write(folder: Path, oddity: Oddity) -> str:
        places = write_audio(folder, oddity)
        table = io.StringIO()
        writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
        writer.writerow(["path", "sentence"])
        for spoken in oddity.corpus:
            writer.writerow([os.path.relpath(places[spoken.seconds], folder), spoken.text])
        return write_lines(folder / f"table.{suffix}", oddity, table.getvalue().splitlines())

    return write


def beside(folder: Path, oddity: Oddity) -> str:
    """A text file beside each recording."""
    places = write_audio(folder, oddity)
    for spoken in oddity.corpus:
        path = places[spoken.seconds].with_suffix(".txt")
        path.write_bytes(oddity.of_tables(f"{spoken.text}\n".encode()))
    return str(folder / "audio")


def members_of(oddity: Oddity) -> list[tuple[str, bytes]]:
    members: list[tuple[str, bytes]] = []
    for spoken in oddity.corpus:
        text = oddity.of_tables(f"{spoken.text}\n".encode()).rstrip(b"\n")
        parts = [(f"{spoken.name}.txt", text)]
        if spoken.is_there:
            parts.insert(0, (f"{spoken.name}.wav", wav(spoken.seconds)))
        if spoken.fields:
            parts.append((f"{spoken.name}.json", json.dumps(spoken.fields).encode()))
        for name, data in parts:
            members += [*oddity.more_members(name), (name, data)]
    return members


def add(file: tarfile.TarFile, name: str, data: bytes, oddity: Oddity) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    file.addfile(info, io.BytesIO(data))
    if oddity.names_files_twice:
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.LNKTYPE, name
        file.addfile(link)


def tar(folder: Path, oddity: Oddity) -> str:
    with tarfile.open(folder / "a.tar", "w") as file:
        for name, data in members_of(oddity):
            add(file, name, data, oddity)
    return write_lines(folder / "shards.list", oddity, [f"{folder}/a.tar"])


def nemo_tar(folder: Path, oddity: Oddity) -> str:
    with tarfile.open(folder / "audio_0.tar", "w") as file:
        for spoken in oddity.corpus:
            members = [(f"{spoken.name}.wav", wav(spoken.seconds))] if spoken.is_there else []
            for name, data in [*oddity.more_members(f"{spoken.name}.wav"), *members]:
                add(file, name, data, oddity)

    lines = [
        json.dumps(
            {
                "audio_filepath": f"{spoken.name}.wav",
                "duration": spoken.seconds,
                "text": spoken.text,
                "shard_id": 0,
                **spoken.fields,
            }
        )
        for spoken in oddity.corpus
    ]
    return write_lines(folder / "tarred.json", oddity, lines)


def parquet(folder: Path, oddity: Oddity) -> str:
    rows = [
        {
            "id": spoken.name,
            "audio": {"bytes": wav(spoken.seconds) if spoken.is_there else None, "path": None},
            "text": spoken.text,
        }
        for spoken in oddity.corpus
    ]
    write_table(folder / "a.parquet", rows, 2)
    return str(folder / "a.parquet")


def lhotse(folder: Path, oddity: Oddity) -> str:
    places = write_audio(folder, oddity)
    lines = []
    for number, spoken in enumerate(oddity.corpus):
        samples = round(spoken.seconds * 8000)
        source = {"type": "file", "channels": [0], "source": str(places[spoken.seconds])}
        recording = {
            "id": f"rec{number}",
            "sources": [source],
            "sampling_rate": 8000,
            "num_samples": samples,
            "duration": spoken.seconds,
            "channel_ids": [0],
        }
        supervision = {
            "id": spoken.name,
            "recording_id": f"rec{number}",
            "start": 0.0,
            "duration": spoken.seconds,
            "channel": 0,
            "text": spoken.text,
            "custom": spoken.fields or None,
        }
        cut = {
            "id": spoken.name,
            "start": 0.0,
            "duration": spoken.seconds,
            "channel": 0,
            "supervisions": [supervision],
            "recording": recording,
            "type": "MonoCut",
        }
        lines.append(json.dumps(cut))
    return write_lines(folder / "cuts.jsonl", oddity, lines)


LAYOUTS: dict[str, Callable[[Path, Oddity], str]] = {
    "raw": raw,
    "nemo": nemo,
    "kaldi": kaldi,
    "segments": segments,
    "csv": separated(",", "csv"),
    "tsv": separated("\t", "tsv"),
    "beside": beside,
    "tar": tar,
    "nemo tar": nemo_tar,
    "parquet": parquet,
    "lhotse": lhotse,
}
