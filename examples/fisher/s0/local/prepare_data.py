#!/usr/bin/env python3
"""Fisher English: telephone conversations of ten minutes between strangers, about a topic that they are given.

1960 hours, 11,699 calls, 8 kHz, a speaker a channel. Licensed by the LDC: audio LDC2004S13 and LDC2005S13, transcripts
LDC2004T19 and LDC2005T19. https://catalog.ldc.upenn.edu/LDC2004S13

Layout, below a folder that holds the four (or some of them) in any depth: audio `fe_03_00001.sph` (mu-law, compressed
with shorten, for which the program sph2pipe is needed), transcripts `fe_03_00001.txt` with comments after `#` and lines
`3.76 5.54 A: and i generally prefer` (seconds, side). Turns with words in doubt `((…))` or skipped `[[skip]]` are left
out. Noises of speakers become <NOISE>, laughter <LAUGHTER>. One call in a hundred each is for development and test.
"""

from __future__ import annotations

import re
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.dataset.data_dir import Recording, audio_files, preparation_parser, split_by, tell_left_out, write_parts
from wenet_uio.dataset.sphere import SIDES, Turn, joined, side_wav, sides_to_wav
from wenet_uio.executor import Executor
from wenet_uio.text.normalize import english
from wenet_uio.text.table import numbered_lines

LINE = re.compile(r"(?P<start>[\d.]+) (?P<end>[\d.]+) (?P<side>[AB]): ?(?P<text>.*)")
MARK = re.compile(r"\[(\w+)\]")
LAUGHTER = frozenset({"laugh", "laughter"})
DOUBTFUL = ("((", "[[")
SHARES = {"dev": 1.0, "test": 1.0}


def read_text(said: str, remove_noises: bool) -> str | None:
    """Words and marks of a turn; None where some of it is in doubt."""
    if any(mark in said for mark in DOUBTFUL):
        return None

    def symbol(found: re.Match) -> str:
        return " " if remove_noises else " <LAUGHTER> " if found[1] in LAUGHTER else " <NOISE> "

    return english(MARK.sub(symbol, said))


def read_call(path: Path, remove_noises: bool) -> dict[str, list[Turn]]:
    """Turns by side."""
    turns: dict[str, list[Turn]] = {side: [] for side in SIDES}
    for number, line in numbered_lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line.strip())
        if not found:
            raise ValueError(f"{path}:{number}: expected `start end A: text`, found {line!r}")
        turn = Turn(float(found["start"]), float(found["end"]), read_text(found["text"], remove_noises))
        if turn.text != "":
            turns[found["side"]].append(turn)
    return turns


def main() -> None:
    parser = preparation_parser(__doc__, "folder that holds LDC2004S13, LDC2004T19, LDC2005S13, LDC2005T19")
    parser.add_argument("--nj", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--remove_noises", choices=("true", "false"), default="false", help="no <NOISE> and <LAUGHTER>")
    parser.add_argument("--min_slice_duration", type=float, default=0.0, help="seconds below which turns are joined")
    args = parser.parse_args()

    spheres = audio_files(args.corpus, ".sph")
    transcripts = {path.stem: path for path in sorted(args.corpus.rglob("fe_03_*.txt"))}
    tell_left_out("calls without a transcript", sorted(spheres.keys() - transcripts.keys()))
    tell_left_out("transcripts without a call", sorted(transcripts.keys() - spheres.keys()))
    calls = sorted(spheres.keys() & transcripts.keys())
    sides_to_wav([spheres[call] for call in calls], args.out / "wav", Executor(args.nj))

    recordings, doubtful = [], []
    for call in calls:
        for side, turns in read_call(transcripts[call], args.remove_noises == "true").items():
            doubtful.extend(f"{call}_{side}_{turn.start:.2f}" for turn in turns if turn.text is None)
            for turn in joined(turns, args.min_slice_duration):
                key = f"{call}_{side}_{round(turn.start * 100):06d}_{round(turn.end * 100):06d}"
                wav = side_wav(args.out / "wav", call, side)
                recordings.append(Recording(key, wav, turn.text, turn.start, turn.end))
    tell_left_out("turns with words in doubt", doubtful)
    write_parts(args.out, split_by(lambda recording: recording.wav.stem[: -len("_A")], recordings, SHARES))


if __name__ == "__main__":
    run(main)
