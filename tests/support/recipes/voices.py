"""A miniature of the three voices."""

from __future__ import annotations

from pathlib import Path

from tests.support.recipes.files import Texts, lines, noise


def voices(root: Path) -> Texts:
    """Texts beside the recordings or in metadata.csv; the hash of a sentence selects the part; a
    text without audio.
    """
    expected: Texts = {
        "train": {
            "kathleen-arctic_a0001_15": "not at this time",
            "kathleen-arctic_a0002_16": "he's gone",
            "kerstin-de-0004": "guten tag jürgen",
            "nathalie-nl_1": "één kat",
        },
        "dev": {"kerstin-de-0007": "warum nicht", "nathalie-nl_2": "ik was moe"},
        "test": {
            "kathleen-arctic_a0002_15": "ach so",
            "nathalie-nl_3": "wie o wie",
            "nathalie-nl_4": "na apen",
        },
    }
    for name, text in (
        ("0001_15", "Not at this time."),
        ("0002_15", "Ach so"),
        ("0002_16", "He’s gone!"),
    ):
        noise(root / "kathleen/data" / f"arctic_a{name}.wav", rate=48000)
        lines(root / "kathleen/data" / f"arctic_a{name}.txt", text)
    lines(
        root / "kerstin/metadata.csv",
        "de-0004|Guten-Tag, Jürgen!",
        "de-0007|Warum nicht?",
        "de-0009|Ohne Ton",
    )
    for name in (
        "kerstin/verified/de-0004",
        "kerstin/verified/de-0007",
        *(f"nathalie/verified/nl_{n}" for n in "1234"),
    ):
        noise(root / f"{name}.flac", rate=48000)
        (root / f"{name}.webm").touch()
    rows = ("nl_1|één kat", "nl_2|ik was moe", "nl_3|wie o wie", "nl_4|na-apen")
    lines(root / "nathalie/verified/metadata.csv", *rows)
    return expected
