#!/usr/bin/env python3
"""yesno: one speaker who says yes or no eight times in each recording.

60 recordings, 0.1 hours, 8 kHz mono wav. Licence: as OpenSLR 1 states. https://www.openslr.org/1

Layout: `0_1_0_1_0_1_1_0.wav`: eight digits are eight words, 1 yes and 0 no; there is no other transcript. As in Kaldi's
recipe, recordings whose name begins with 1 are the test part; of the others every ninth is for development.
"""

from __future__ import annotations

import re

from wenet_uio.cli import run
from wenet_uio.dataset.data_dir import Recording, audio_files, preparation_parser, write_parts

NAME = re.compile(r"[01](_[01]){7}")
WORDS = {"0": "NO", "1": "YES"}
DEV_EVERY = 9


def main() -> None:
    args = preparation_parser(__doc__, "folder of the recordings, or the one that holds waves_yesno/").parse_args()
    parts: dict[str, list[Recording]] = {"train": [], "dev": [], "test": []}
    rest = 0
    for name, wav in audio_files(args.corpus, ".wav").items():
        if not NAME.fullmatch(name):
            raise ValueError(f"{wav}: expected a name like 0_1_0_1_0_1_1_0.wav, a digit for each of eight words")
        part = "test"
        if name[0] == "0":
            rest += 1
            part = "dev" if rest % DEV_EVERY == 0 else "train"
        parts[part].append(Recording(name, wav, " ".join(WORDS[digit] for digit in name.split("_"))))
    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
