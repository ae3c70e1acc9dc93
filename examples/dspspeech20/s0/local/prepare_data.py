#!/usr/bin/env python3
"""DSPSpeech-20, the Mandarin part: 12 words of two characters by 34 speakers, one word per
recording.

16 kHz mono, about two seconds each, recorded by students on a web page. The whole corpus has 20
words (8 of them English) and 13,600 wav files, 20 of each word by each speaker. Licence: MIT.
https://github.com/zhongyuchen/DSPSpeech-20

Two layouts can be read:

- an excerpt (816 recordings, 0.46 hours): `manifest.tsv` with the columns utt_id, split (train,
  dev, test), path, text, and `wav/`; no speaker is in two parts;
- the corpus as published: `speech_data/{speaker}/{speaker}-{word}-{index}.wav`; 10 % of the
  speakers are used for development and 20 % for the test.
"""

from __future__ import annotations

import csv
from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    Recording,
    audio_files,
    preparation_parser,
    require_in,
    split_by,
    write_parts,
)

WORDS = (
    "数字",
    "语音",
    "语言",
    "识别",
    "中国",
    "总工",
    "北京",
    "背景",
    "上海",
    "商行",
    "复旦",
    "饭店",
)
"""Words by their number in file names; numbers 12 to 19 are English words, which are left out."""
SHARES = {"dev": 10.0, "test": 20.0}


def from_manifest(corpus: Path) -> dict[str, list[Recording]]:
    """Return utterances by part of the excerpt, as manifest.tsv lists them."""
    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    with open(corpus / "manifest.tsv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            parts[row["split"]].append(Recording(row["utt_id"], corpus / row["path"], row["text"]))
    return parts


def as_published(corpus: Path) -> dict[str, list[Recording]]:
    """Return Mandarin utterances by part of the published corpus.

    No speaker is in two parts.

    Raises:
        ValueError: a file name has another form.
    """
    recordings = []
    for name, wav in audio_files(corpus / "speech_data", ".wav").items():
        fields = name.split("-")
        if len(fields) != 3 or not fields[1].isdecimal():
            raise ValueError(
                f"{wav}: expected a name like 16307130194-02-16.wav, "
                "{speaker}-{word}-{index}.wav"
            )

        word = int(fields[1])
        if word < len(WORDS):
            recordings.append(Recording(name, wav, WORDS[word]))

    return split_by(lambda recording: recording.key.split("-")[0], recordings, SHARES)


def main() -> None:
    """Read the layout that is there, and write the parts."""
    args = preparation_parser(
        __doc__, "folder that holds manifest.tsv, or speech_data/"
    ).parse_args()
    if (args.corpus / "speech_data").is_dir():
        parts = as_published(args.corpus)
    else:
        require_in(args.corpus, "manifest.tsv")
        parts = from_manifest(args.corpus)

    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
