"""Corpora of three recordings, each with one oddity: in their names, texts, tables or files."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

APPLE = b"\0\5\x16\7\0\2\0\0Mac OS X        "
"""First bytes of the file `._NAME` that macOS writes beside NAME."""


@dataclass(frozen=True)
class Spoken:
    """A recording of a corpus."""

    name: str
    """Of its file, without suffix."""
    text: str
    seconds: float
    """Different for each recording: it says which one arrived."""
    is_there: bool = True
    fields: dict[str, Any] = field(default_factory=dict)
    """Other fields of its line."""


CORPUS = (
    Spoken("anna_1", "eins zwei", 0.4),
    Spoken("anna_2", "drei vier", 0.5),
    Spoken("bert_1", "fünf sechs", 0.6),
)


@dataclass(frozen=True)
class Oddity:
    """What is unusual about a corpus."""

    corpus: tuple[Spoken, ...] = CORPUS
    of_tables: Callable[[bytes], bytes] = lambda data: data
    """Changes each table or list of lines."""
    of_folder: Callable[[Path], None] = lambda folder: None
    """Changes the folder with the audio."""
    more_members: Callable[[str], list[tuple[str, bytes]]] = lambda name: []
    """Members of a tar beside the member of this name."""
    names_files_twice: bool = False
    """Every file was named twice for `tar`, which writes a hard link to itself."""


def renamed(change: Callable[[str], str]) -> tuple[Spoken, ...]:
    return tuple(replace(spoken, name=change(spoken.name)) for spoken in CORPUS)


def changed(number: int, **values: Any) -> tuple[Spoken, ...]:
    return tuple(
        replace(spoken, **values) if place == number else spoken
        for place, spoken in enumerate(CORPUS)
    )


def as_links(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    for file in [*folder.glob("*.wav")]:
        file.rename(elsewhere / file.name)
        file.symlink_to(elsewhere / file.name)


def with_apple_files(folder: Path) -> None:
    for file in [*folder.iterdir()]:
        file.with_name(f"._{file.name}").write_bytes(APPLE)


ODDITIES: dict[str, Oddity] = {
    "plain": Oddity(),
    "BOM": Oddity(of_tables=lambda data: b"\xef\xbb\xbf" + data),
    "CRLF": Oddity(of_tables=lambda data: data.replace(b"\n", b"\r\n")),
    "no end": Oddity(of_tables=lambda data: data.removesuffix(b"\n")),
    "blank": Oddity(of_tables=lambda data: data.replace(b"\n", b"\n\n", 1)),
    "dots": Oddity(renamed(lambda name: name.replace("_", ".0"))),
    "spaces": Oddity(renamed(lambda name: name.replace("_", " "))),
    "NFD": Oddity(renamed(lambda name: unicodedata.normalize("NFD", f"{name}ü"))),
    "case": Oddity(changed(1, name="ANNA_1")),
    "doubled": Oddity((*CORPUS, replace(CORPUS[0], text="sieben", seconds=0.7))),
    "empty": Oddity(changed(1, text="")),
    "missing": Oddity(changed(1, is_there=False)),
    "field": Oddity(changed(1, fields={"loudness": {"peak": [1, 2]}, "speaker": None})),
    "links": Oddity(of_folder=as_links),
    "apple": Oddity(of_folder=with_apple_files, more_members=lambda name: [(f"./._{name}", APPLE)]),
    "order": Oddity(CORPUS[::-1]),
    "twice": Oddity(names_files_twice=True),
}
