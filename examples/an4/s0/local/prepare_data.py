#!/usr/bin/env python3
"""AN4, the census database of Carnegie Mellon University: names, addresses, dates and numbers,
spoken or spelled.

948 utterances for training and 130 for the test, 16 kHz mono sphere files, recorded in 1991 (A.
Acero, Acoustical and Environmental Robustness in Automatic Speech Recognition). CMU distributes the
corpus free of charge. http://www.speech.cs.cmu.edu/databases/an4/

Layout: `wav/an4_clstk/{speaker}/an251-fash-b.sph`, `wav/an4test_clstk/…` and
`etc/an4_{train,test}.transcription` with lines `<s> TEXT </s> (an251-fash-b)`; lines of the test
part have no marks. Sphere files are read directly. A tenth of the training speakers is used for
development.
"""

from __future__ import annotations

import re
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
from wenet_uio.text.normalize import english
from wenet_uio.text.table import numbered_lines

LINE = re.compile(r"(?:<s>)?(?P<text>.*?)(?:</s>)?\s*\((?P<key>\S+)\)\s*")
SHARES = {"dev": 10.0}


def read_part(corpus: Path, part: str, folder: str) -> list[Recording]:
    """Return utterances of a part (train or test), whose audio is in `folder`.

    Raises:
        ValueError: a line of the transcription has another form.
    """
    require_in(corpus, f"wav/{folder}", f"etc/an4_{part}.transcription")
    path = corpus / "etc" / f"an4_{part}.transcription"
    texts = {}

    for number, line in numbered_lines(path):
        if not line.strip():
            continue

        match = LINE.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"{path}:{number}: expected `TEXT (key)`, found {line!r}")

        texts[match["key"]] = english(match["text"])

    return with_texts(audio_files(corpus / "wav" / folder, ".sph"), texts, part)


def main() -> None:
    """Read both parts, divide the training speakers, and write train, dev and test."""
    args = preparation_parser(__doc__, "folder that holds etc/ and wav/").parse_args()
    train = read_part(args.corpus, "train", "an4_clstk")
    parts = split_by(lambda recording: recording.wav.parent.name, train, SHARES)
    write_parts(args.out, {**parts, "test": read_part(args.corpus, "test", "an4test_clstk")})


if __name__ == "__main__":
    run(main)
