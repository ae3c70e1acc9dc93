#!/usr/bin/env python3
"""LibriSpeech: English books read by volunteers of LibriVox, 2484 speakers.

960 hours for training, 16 kHz mono flac. Licence: CC BY 4.0. https://www.openslr.org/12

Layout: `{part}/{speaker}/{chapter}/{speaker}-{chapter}-{number}.flac`, with the upper-case texts of
a chapter in `{speaker}-{chapter}.trans.txt`. Parts and utterances: train-clean-100 28,539,
train-clean-360 104,014, train-other-500 148,688, dev-clean 2,703, dev-other 2,864, test-clean
2,620, test-other 2,939. Both dev parts together are `dev`.
"""

from __future__ import annotations

from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    Recording,
    audio_files,
    preparation_parser,
    require_in,
    write_parts,
)
from wenet_uio.text.normalize import english
from wenet_uio.text.table import read_table

TRAIN = ("train-clean-100", "train-clean-360", "train-other-500")


def read_part(corpus: Path, name: str) -> list[Recording]:
    """Return utterances of one part.

    Raises:
        ValueError: audio has no text, or a text has no audio.
    """
    require_in(corpus, name)
    wavs = audio_files(corpus / name, ".flac")
    texts = {}
    for table in sorted((corpus / name).rglob("*.trans.txt")):
        texts.update(read_table(table))

    unpaired = sorted(wavs.keys() ^ texts.keys())
    if unpaired:
        raise ValueError(
            f"{corpus / name}: {unpaired[0]} and {len(unpaired) - 1} others have only audio or only "
            "text; is it complete?"
        )

    return [Recording(key, wav, english(texts[key])) for key, wav in wavs.items()]


def main() -> None:
    """Read the parts, join the development sets, and write all."""
    parser = preparation_parser(__doc__, "folder that holds train-clean-100/ and so on")
    parser.add_argument(
        "--train_parts",
        nargs="+",
        choices=TRAIN,
        default=TRAIN,
        help="parts for training (default: all)",
    )
    args = parser.parse_args()
    names_of = {
        "train": args.train_parts,
        "dev": ("dev-clean", "dev-other"),
        "test_clean": ("test-clean",),
        "test_other": ("test-other",),
    }
    parts = {
        part: [line for name in names for line in read_part(args.corpus, name)]
        for part, names in names_of.items()
    }
    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
