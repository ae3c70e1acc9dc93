#!/usr/bin/env python3
"""Synthetic commands: the corpus that local/synthesize.py makes with eSpeak NG.

2300 utterances, 1.1 hours in English, 22.05 kHz mono wav. A grammar of household commands with numbers has 56 English
words or 70 Mandarin characters. The recordings are the output of eSpeak NG (https://github.com/espeak-ng/espeak-ng,
GPL-3.0-or-later); the sentences were written for this recipe.

Layout: `manifest.tsv` with the columns key, part, wav (relative), voice, words_per_minute, pitch, snr, text. A key
starts with the voice: en-us_f3_… is American English in the third female variant. No voice and no sentence of dev or
test is in train.
"""

from __future__ import annotations

import csv

from wenet_uio.cli import run
from wenet_uio.prepare.corpus_parts import Recording, preparation_parser, write_parts


def main() -> None:
    """Read manifest.tsv and write the parts."""
    args = preparation_parser(__doc__, "folder that holds manifest.tsv").parse_args()
    manifest = args.corpus / "manifest.tsv"
    if not manifest.is_file():
        raise ValueError(f"{manifest} is missing; stage -1 synthesises the corpus (--stage -1)")
    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    with open(manifest, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            parts[row["part"]].append(Recording(row["key"], args.corpus / row["wav"], row["text"]))
    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
