#!/usr/bin/env python3
"""The Free Spoken Digit Dataset: English digits, one per recording.

3000 recordings, 0.36 hours, 6 speakers with several accents, 50 recordings of each digit by each
speaker; 8 kHz mono wav, with silence trimmed. Licence: CC BY-SA 4.0.
https://github.com/Jakobovski/free-spoken-digit-dataset

Layout: `recordings/{digit}_{speaker}_{index}.wav`. The official test part is index 0-4 of every
digit and speaker. Index 5-7 is used for development, the rest for training.
"""

from __future__ import annotations

import re

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import Recording, preparation_parser, write_parts

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>\w+)_(?P<index>\d+)")
FIRST_DEV_INDEX, FIRST_TRAIN_INDEX = 5, 8


def part_of(index: int) -> str:
    """Return the part of a recording, by the index in its name."""
    if index < FIRST_DEV_INDEX:
        return "test"
    return "dev" if index < FIRST_TRAIN_INDEX else "train"


def main() -> None:
    """Read digits and speakers from file names, and write the parts."""
    args = preparation_parser(__doc__, "folder that holds recordings/").parse_args()
    wavs = list((args.corpus / "recordings").glob("*.wav"))
    if not wavs:
        raise ValueError(
            f"no recordings/*.wav in {args.corpus}: name the corpus with --data, or run stage -1"
        )

    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    for wav in wavs:
        name = NAME.fullmatch(wav.stem)
        if not name:
            raise ValueError(
                f"{wav}: expected a name like 7_jackson_32.wav, {{digit}}_{{speaker}}_{{index}}.wav"
            )

        index = int(name["index"])
        key = f"{name['speaker']}_{name['digit']}_{index:02d}"
        parts[part_of(index)].append(Recording(key, wav, DIGITS[int(name["digit"])]))

    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
