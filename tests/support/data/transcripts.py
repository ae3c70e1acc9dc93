"""Files of transcripts and empty audio for the tests of own corpora."""

from __future__ import annotations

from pathlib import Path

from wenet_uio.prepare.own_corpus import ReadOptions, read_transcripts

EXPECTED = [
    ("utt0000", "utt0000.wav", "one two", 0.0, None),
    ("utt0001", "utt0001.wav", "three", 0.0, None),
]
"""The first two utterances of the fixture `corpus`, as `read` gives them."""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def with_audio(corpus: Path, *wavs: str) -> None:
    for wav in wavs:
        (corpus / wav).parent.mkdir(parents=True, exist_ok=True)
        (corpus / wav).touch()


def read(path: Path, audio: Path | None = None) -> list[tuple]:
    lines = read_transcripts(path, ReadOptions(audio=audio))
    return [(line.key, Path(line.wav).name, line.text, line.start, line.end) for line in lines]
