#!/usr/bin/env python3
"""speechocean762: English sentences read by 250 speakers of Mandarin, half of them children, scored
by experts.

5000 utterances, 2500 for training and 2500 for the test, about 6 hours, 16 kHz mono wav. The text
is the sentence to read; some speakers misread it. Licence: CC BY 4.0. https://www.openslr.org/101

Layout: `WAVE/SPEAKER0003/000030012.WAV`; `train/` and `test/` are Kaldi directories with different
speakers; paths in `wav.scp` start at the folder of the corpus. A tenth of the training speakers is
for development.
"""

from __future__ import annotations

from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    Recording,
    preparation_parser,
    require_in,
    split_by,
    write_parts,
)
from wenet_uio.text.normalize import english
from wenet_uio.text.table import read_table

SHARES = {"dev": 10.0}


def read_part(corpus: Path, part: str) -> list[Recording]:
    """Return utterances of a part (train or test).

    Raises:
        ValueError: `wav.scp` and `text` have different keys.
    """
    wavs, texts = (read_table(corpus / part / name) for name in ("wav.scp", "text"))
    unpaired = sorted(wavs.keys() ^ texts.keys())
    if unpaired:
        raise ValueError(
            f"{corpus / part}: {unpaired[0]} and {len(unpaired) - 1} others are missing from "
            "wav.scp or text"
        )

    return [Recording(key, corpus / wav, english(texts[key])) for key, wav in wavs.items()]


def main() -> None:
    """Read both parts, divide the training speakers, and write train, dev and test."""
    args = preparation_parser(__doc__, "folder that holds WAVE/, train/, test/").parse_args()
    require_in(args.corpus, "WAVE", "train/wav.scp", "train/utt2spk", "test/wav.scp")
    speakers = read_table(args.corpus / "train" / "utt2spk")
    train = read_part(args.corpus, "train")
    parts = split_by(lambda recording: speakers[recording.key], train, SHARES)
    write_parts(args.out, {**parts, "test": read_part(args.corpus, "test")})


if __name__ == "__main__":
    run(main)
