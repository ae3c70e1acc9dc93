#!/usr/bin/env python3
"""Fisher English: telephone conversations of ten minutes between strangers, on a given topic.

1960 hours, 11,699 calls, 8 kHz, one speaker per channel. Licensed by the LDC: audio LDC2004S13 and
LDC2005S13, transcripts LDC2004T19 and LDC2005T19. https://catalog.ldc.upenn.edu/LDC2004S13

Layout: a folder that holds all or some of the four, at any depth. Audio is `fe_03_00001.sph`
(mu-law, compressed with shorten, which needs the program sph2pipe). Transcripts are
`fe_03_00001.txt` with comments after `#` and lines `3.76 5.54 A: and i generally prefer` (seconds,
side). Turns with uncertain words `((…))` or skipped speech `[[skip]]` are left out, and so are
lines of another form. Marks in brackets are read as in Kaldi's fisher_data_prep.sh: noises of
speakers become <NOISE>, laughter becomes <LAUGHTER>. One percent of the calls each is used for
development and test.
"""

from __future__ import annotations

import re
from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor
from wenet_uio.prepare.calls import SIDES, Turn, recordings_of, sides_to_wav
from wenet_uio.prepare.corpus_parts import (
    audio_files,
    files_below,
    preparation_parser,
    split_by,
    tell_left_out,
    write_parts,
)
from wenet_uio.text.normalize import english_of_calls
from wenet_uio.text.table import numbered_lines

LINE = re.compile(r"(?P<start>[\d.]+)\s+(?P<end>[\d.]+)\s+(?P<side>[AB])\s*:\s*(?P<text>.*)")
MARK = re.compile(r"\[(\w+)\]")
LAUGHTER = frozenset({"laugh", "laughter"})
DOUBTFUL = ("((", "[[")
SHARES = {"dev": 1.0, "test": 1.0}
CORRECTIONS = {
    "fe_03_00265_B_33.53": "correct",
    "fe_03_00991_B_527.39": "that's one of those",
    "fe_03_10282_A_344.42": "they don't want",
    "fe_03_10677_B_101.04": "uh my mine yeah the german shepherd pitbull mix he snores almost as "
    "loud as i do",
    "fe_03_00027_B_393.80": None,
    "fe_03_01326_A_307.42": None,
    "fe_03_11487_B_31.09": None,
}
"""Corrected texts of turns; None for turns with wrong times, which are left out. The errors were
found by Mozilla, see import_fisher.py of DeepSpeech."""


def read_text(words: str, remove_noises: bool) -> str | None:
    """Return words and marks of a turn; None if some words are uncertain."""
    if any(mark in words for mark in DOUBTFUL):
        return None

    def symbol(mark: re.Match) -> str:
        if remove_noises:
            return " "
        return " <LAUGHTER> " if mark[1] in LAUGHTER else " <NOISE> "

    return english_of_calls(MARK.sub(symbol, words))


def read_call(path: Path, remove_noises: bool) -> tuple[dict[str, list[Turn]], list[str]]:
    """Return turns by side, and `file:number` of odd lines.

    These have another form, or end before they start.
    """
    turns: dict[str, list[Turn]] = {side: [] for side in SIDES}
    odd = []
    for number, line in numbered_lines(path):
        if not line.strip() or line.startswith("#"):
            continue

        match = LINE.fullmatch(line.strip())
        if not match or float(match["start"]) >= float(match["end"]):
            odd.append(f"{path.name}:{number}")
            continue

        start, end, side = float(match["start"]), float(match["end"]), match["side"]
        words = CORRECTIONS.get(f"{path.stem}_{side}_{start:.2f}", match["text"])
        turn = Turn(start, end, None if words is None else read_text(words, remove_noises))
        if turn.text != "":
            turns[side].append(turn)

    return turns, odd


def main() -> None:
    """Read the transcripts, write the sides of the calls as wav files, and write the parts."""
    parser = preparation_parser(
        __doc__, "folder that holds LDC2004S13, LDC2004T19, LDC2005S13, LDC2005T19"
    )
    parser.add_argument("--nj", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument(
        "--remove_noises",
        choices=("true", "false"),
        default="false",
        help="leave out <NOISE> and <LAUGHTER>",
    )
    parser.add_argument(
        "--min_slice_duration",
        type=float,
        default=0.0,
        help="join turns shorter than this many seconds",
    )
    args = parser.parse_args()

    spheres = audio_files(args.corpus, ".sph", stem="fe_03_*")
    transcripts = {path.stem: path for path in files_below(args.corpus, "fe_03_*.txt")}
    tell_left_out("calls without a transcript", sorted(spheres.keys() - transcripts.keys()))
    tell_left_out("transcripts without a call", sorted(transcripts.keys() - spheres.keys()))
    calls = sorted(spheres.keys() & transcripts.keys())

    recordings, doubtful, odd = [], [], []
    for call in calls:
        sides, odd_lines = read_call(transcripts[call], args.remove_noises == "true")
        odd.extend(odd_lines)
        for side, turns in sides.items():
            doubtful += [f"{call}_{side}_{turn.start:.2f}" for turn in turns if turn.text is None]
            recordings += recordings_of(
                call, side, turns, args.out / "wav", args.min_slice_duration
            )

    tell_left_out("lines that are not `start end A: text`", odd)
    tell_left_out("turns with uncertain words", doubtful)
    sides_to_wav([spheres[call] for call in calls], args.out / "wav", Executor(args.nj))

    # Both sides of a call are in one part.
    parts = split_by(lambda recording: recording.wav.stem[: -len("_A")], recordings, SHARES)
    write_parts(args.out, parts)


if __name__ == "__main__":
    run(main)
