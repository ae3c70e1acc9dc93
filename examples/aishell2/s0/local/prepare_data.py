#!/usr/bin/env python3
"""AISHELL-2: Mandarin read by 1991 speakers, recorded with telephones (iOS).

1000 hours, 16 kHz mono wav. Development and test sets have other speakers, and were recorded by
iOS, Android and a microphone (Mic) at the same time. Universities get the corpus for research on
application to AISHELL; the recipe downloads nothing. https://www.aishelltech.com/aishell_2,
https://arxiv.org/abs/1808.10583

Layout: `wav.scp`, `trans.txt` and `wav/` in `iOS/data` (or `AISHELL-2/iOS/data`, as unpacked) and
in `AISHELL-DEV-TEST-SET/{iOS,Android,Mic}/{dev,test}`. Lines are `key<tab>value`. Paths in
`wav.scp` are relative to its folder; `trans.txt` is Mandarin without spaces, with some Latin
letters. Quotes, brackets and hyphens are removed, and one rare character is replaced by another, as
in Kaldi's multi_cn recipe (aishell2_data_prep.sh).
"""

from __future__ import annotations

from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    Recording,
    preparation_parser,
    require_in,
    with_texts,
    write_parts,
)
from wenet_uio.text.normalize import mandarin
from wenet_uio.text.table import read_table

CHANNELS = ("iOS", "Android", "Mic")
TRAIN = ("iOS/data", "AISHELL-2/iOS/data")
WRITTEN_AS = str.maketrans("𫖯", "頫")


def read_part(corpus: Path, folder: str) -> list[Recording]:
    """Return utterances of a folder with `wav.scp` and `trans.txt`."""
    require_in(corpus, f"{folder}/wav.scp", f"{folder}/trans.txt")
    paths = read_table(corpus / folder / "wav.scp")
    transcripts = read_table(corpus / folder / "trans.txt")
    wavs = {key: corpus / folder / path for key, path in paths.items()}
    texts = {key: mandarin(text.translate(WRITTEN_AS)) for key, text in transcripts.items()}
    return with_texts(wavs, texts, folder)


def main() -> None:
    """Read the three parts and write them."""
    parser = preparation_parser(
        __doc__, "folder that holds iOS/ or AISHELL-2/iOS/, and AISHELL-DEV-TEST-SET/"
    )
    parser.add_argument(
        "--channel",
        choices=CHANNELS,
        default="iOS",
        help="recording device of dev and test (default: %(default)s)",
    )
    args = parser.parse_args()
    train = next((folder for folder in TRAIN if (args.corpus / folder).exists()), TRAIN[0])
    others = f"AISHELL-DEV-TEST-SET/{args.channel}"
    folders = {"train": train, "dev": f"{others}/dev", "test": f"{others}/test"}
    parts = {part: read_part(args.corpus, folder) for part, folder in folders.items()}
    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
