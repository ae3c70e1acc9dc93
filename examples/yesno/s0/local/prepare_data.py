#!/usr/bin/env python3
"""yesno: one speaker who says yes or no eight times in each recording.

60 recordings, 0.1 hours, 8 kHz mono wav. Licence: as OpenSLR 1 states. https://www.openslr.org/1

Layout: `0_1_0_1_0_1_1_0.wav`; eight digits are eight words, 1 is yes and 0 is no. There is no other
transcript. In the order of names, every fourth recording is used for the test (15) and every
twelfth for development (5). Kaldi tests on recordings whose name begins with 1. Then every training
sentence would begin with NO, and a neural network learns that.
"""

from __future__ import annotations

import re

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import Recording, audio_files, preparation_parser, write_parts

NAME = re.compile(r"[01](_[01]){7}")
WORDS = {"0": "NO", "1": "YES"}
TEST_EVERY, DEV_EVERY = 4, 12


def part_of(number: int) -> str:
    """Return the part of a recording, by its number in the order of names."""
    if number % TEST_EVERY == 0:
        return "test"
    return "dev" if number % DEV_EVERY == 1 else "train"


def main() -> None:
    """Read the words from file names, and write the parts."""
    args = preparation_parser(
        __doc__, "folder of the recordings, or the one that holds waves_yesno/"
    ).parse_args()
    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    for number, (name, wav) in enumerate(audio_files(args.corpus, ".wav").items()):
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{wav}: expected a name like 0_1_0_1_0_1_1_0.wav, a digit for each of eight words"
            )
        words = " ".join(WORDS[digit] for digit in name.split("_"))
        parts[part_of(number)].append(Recording(name, wav, words))

    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
