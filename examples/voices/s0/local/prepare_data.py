#!/usr/bin/env python3
"""Three voices: read sentences of an English, a German and a Dutch speaker.

4120 utterances, 3.8 hours, recorded for speech synthesis. Licence: CC0.
https://github.com/rhasspy/dataset-voice-kathleen, dataset-voice-kerstin, dataset-voice-nathalie

Layouts:
- the folders kathleen/, kerstin/, nathalie/: the repositories. Texts are in a `.txt` file beside
  each recording, or in a `metadata.csv` with lines `name|text`. A hash of the sentence selects the
  part, so that no sentence is in two parts.
- `transcripts.tsv` and `audio/`: an excerpt with the columns key, wav, txt, lang, part.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections import Counter
from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    Recording,
    audio_files,
    preparation_parser,
    require_in,
    split_by,
    with_texts,
    write_parts,
)
from wenet_uio.prepare.kaldi_tables import write_table

LANGUAGES = {"kathleen": "en", "kerstin": "de", "nathalie": "nl"}
SHARES = {"dev": 5.0, "test": 10.0}
NOT_OF_A_WORD = re.compile(r"[^\w']|[\d_]")


def letters(text: str) -> str:
    """Return a sentence as lower-case words without punctuation; a hyphen separates words."""
    folded = unicodedata.normalize("NFC", text).replace("’", "'").lower()
    return " ".join(NOT_OF_A_WORD.sub(" ", folded).split())


def read_texts(voice: Path) -> dict[str, str]:
    """Return {name of a recording: its text}.

    Raises:
        ValueError: a line of a metadata.csv has no bar, or the repository has no texts.
    """
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (voice / "data").glob("*.txt")}
    for table in (voice / "metadata.csv", voice / "verified" / "metadata.csv"):
        lines = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
        for number, line in enumerate(lines, 1):
            name, bar, text = line.partition("|")
            if not bar:
                raise ValueError(f"{table}:{number}: expected name|text, found {line!r}")
            texts[name] = text

    if not texts:
        raise ValueError(
            f"{voice} has neither data/*.txt nor metadata.csv: name the corpus with --data"
        )

    return texts


def read_repositories(corpus: Path) -> dict[str, list[Recording]]:
    """Return the parts of the three repositories."""
    require_in(corpus, *LANGUAGES)
    recordings: list[Recording] = []
    for voice in LANGUAGES:
        texts = {name: letters(text) for name, text in read_texts(corpus / voice).items()}
        of_voice = with_texts(audio_files(corpus / voice, ".wav", ".flac"), texts, voice)
        recordings += [recording._replace(key=f"{voice}-{recording.key}") for recording in of_voice]

    return split_by(lambda recording: recording.text, recordings, SHARES)


def read_excerpt(corpus: Path) -> dict[str, list[Recording]]:
    """Return the parts that transcripts.tsv names."""
    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    with (corpus / "transcripts.tsv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE):
            parts[row["part"]].append(Recording(row["key"], corpus / row["wav"], row["txt"]))
    return parts


def main() -> None:
    """Read the corpus, and write train, dev and test with the language of each utterance."""
    args = preparation_parser(
        __doc__, "folder of kathleen/, kerstin/, nathalie/, or of transcripts.tsv"
    ).parse_args()
    is_excerpt = (args.corpus / "transcripts.tsv").is_file()
    parts = read_excerpt(args.corpus) if is_excerpt else read_repositories(args.corpus)
    write_parts(args.out, parts)

    for part, recordings in parts.items():
        languages = {
            recording.key: LANGUAGES[recording.key.partition("-")[0]] for recording in recordings
        }
        write_table(args.out / part / "utt2lang", sorted(languages.items()))
        print(f"{part}: {dict(sorted(Counter(languages.values()).items()))}")


if __name__ == "__main__":
    run(main)
