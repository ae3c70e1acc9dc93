#!/usr/bin/env python3
"""Synthetic commands: the corpus that local/synthesize.py makes with eSpeak NG.

2300 utterances, 1.1 hours in English, 22.05 kHz mono wav. A grammar of household commands with
numbers has 56 English words or 70 Mandarin characters. The recordings are the output of eSpeak NG
(https://github.com/espeak-ng/espeak-ng, GPL-3.0-or-later); the sentences were written for this
recipe.

Layout: `manifest.tsv` with the columns key, part, wav (relative), voice, words_per_minute, pitch,
snr, text. A key starts with the voice: en-us_f3_… is American English in the third female variant.
No voice and no sentence of dev or test is in train.

With `--hybrid LANGUAGE` every second utterance of train has no audio: its text is in OUT/text_only,
for training to speak. `manifest.json` is NeMo's manifest of texts, `speakers.txt` the voices of
train, `text` the table of texts.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from voices import LANGUAGES, voices

from wenet_uio.base.cli import run
from wenet_uio.base.files import written_aside
from wenet_uio.prepare.corpus_parts import Recording, preparation_parser, write_parts
from wenet_uio.prepare.kaldi_tables import by_key, write_table


def main() -> None:
    """Read manifest.tsv and write the parts."""
    parser = preparation_parser(__doc__, "folder that holds manifest.tsv")
    parser.add_argument(
        "--hybrid",
        choices=sorted(LANGUAGES),
        help="half of train as text; the language of its voices",
    )
    args = parser.parse_args()
    manifest = args.corpus / "manifest.tsv"
    if not manifest.is_file():
        raise ValueError(f"{manifest} is missing; stage -1 synthesises the corpus (--stage -1)")

    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    with open(manifest, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            parts[row["part"]].append(Recording(row["key"], args.corpus / row["wav"], row["text"]))

    if args.hybrid:
        texts = parts["train"][1::2]
        parts["train"] = parts["train"][::2]
        write_text_only(args.out / "text_only", texts, voices(args.hybrid, "train"))

    write_parts(args.out, parts)


def write_text_only(folder: Path, texts: list[Recording], speakers: list[str]) -> None:
    """Write utterances without their audio, and the voices that may speak them."""
    # A key of the corpus starts with its voice. Another voice speaks the text in training.
    texts_of = {f"text_{recording.key.rpartition('_')[2]}": recording.text for recording in texts}
    rows = [(key, texts_of[key]) for key in sorted(texts_of, key=by_key)]
    write_table(folder / "text", rows)

    with written_aside(folder / "manifest.json", "w") as file:
        for key, text in rows:
            file.write(json.dumps({"key": key, "text": text}, ensure_ascii=False) + "\n")

    with written_aside(folder / "speakers.txt", "w") as file:
        file.writelines(f"{speaker}\n" for speaker in speakers)


if __name__ == "__main__":
    run(main)
