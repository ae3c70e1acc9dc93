#!/usr/bin/env python3
"""HUB5 2000 (eval2000), the English part: 40 telephone conversations for testing.

20 calls of Switchboard (`sw_…`, between strangers) and 20 of CallHome (`en_…`, between friends and
relatives), 8 kHz, one speaker per channel. Licensed by the LDC: audio LDC2002S09, transcripts
LDC2002T43. https://catalog.ldc.upenn.edu/LDC2002S09

Layout: a folder that holds both, at any depth. Audio is `english/en_4156.sph`. The transcript is
`reference/hub5e00.english.000405.stm`, with comments after `;;` and lines
`en_4156 A en_4156_A 301.85 302.48 <O,en,F,en-F> OH YEAH` (call, side, speaker, seconds, groups,
words). The first of several alternatives `{ A / B }` is used. Words in parentheses are optional in
NIST's scoring. Here, fragments of words are removed, and the scoring in stage 5 ignores hesitations
(conf/hesitations.txt, as in Kaldi's score_sclite.sh). Other optional words stay; UH-HUH and similar
words are one word. Segments marked IGNORE_TIME_SEGMENT_IN_SCORING are left out.

The corpus has no training data: train and dev are copied from the Fisher recipe.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from wenet_uio.base.cli import run
from wenet_uio.base.executor import Executor
from wenet_uio.base.files import written_aside
from wenet_uio.prepare.calls import SIDES, Turn, recordings_of, sides_to_wav
from wenet_uio.prepare.corpus_parts import (
    Recording,
    audio_files,
    files_below,
    preparation_parser,
    tell_left_out,
    write_parts,
)
from wenet_uio.text.normalize import english_of_calls
from wenet_uio.text.table import numbered_lines

TRANSCRIPT = "hub5e00.english.000405.stm"
PARTS = {"sw": "test_swbd", "en": "test_callhome"}
IGNORED = ("IGNORE_TIME_SEGMENT_IN_SCORING", "inter_segment_gap")
ALTERNATIVES = re.compile(r"\{([^/}]*)/[^}]*\}")
OPTIONAL = re.compile(r"<[BE]_ASIDE>|%\w+|\S+-(?!\S)|(?<!\S)-\S+")


def read_text(words: str) -> str:
    """Normalise the words of a segment.

    Of alternatives the first is taken; parentheses, asides and fragments are removed.
    """
    words = ALTERNATIVES.sub(r" \1 ", words)
    words = re.sub(r"[()]", " ", words)
    return english_of_calls(OPTIONAL.sub(" ", words))


def read_turns(path: Path) -> dict[tuple[str, str], list[Turn]]:
    """Return turns by call and side; turns that are not scored have no text."""
    turns = defaultdict(list)
    for number, line in numbered_lines(path):
        if not line.strip() or line.startswith(";;"):
            continue

        fields = line.split(maxsplit=6)
        if len(fields) < 6 or fields[1] not in SIDES:
            raise ValueError(
                f"{path}:{number}: expected `call side speaker start end <groups> words`, found "
                f"{line!r}"
            )

        call, side, _, start, end = fields[:5]
        words = fields[6] if len(fields) > 6 else ""
        is_ignored = any(mark in line for mark in IGNORED)
        text = "" if is_ignored else read_text(words)
        turns[call, side].append(Turn(float(start), float(end), text or None))

    return turns


def copy_training_parts(fisher: Path, out: Path) -> None:
    """Copy train and dev of the Fisher recipe to `out`."""
    for part in ("train", "dev"):
        for table in ("wav.scp", "segments", "text"):
            with written_aside(out / part / table) as file:
                file.write((fisher / part / table).read_bytes())


def main() -> None:
    """Read the transcript, write the sides of the calls as wav files, and write the parts."""
    parser = preparation_parser(__doc__, "folder that holds LDC2002S09 and LDC2002T43")
    parser.add_argument(
        "--fisher", type=Path, required=True, help="folder data/ of the Fisher recipe"
    )
    parser.add_argument("--nj", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument(
        "--min_slice_duration",
        type=float,
        default=0.0,
        help="join turns shorter than this many seconds",
    )
    args = parser.parse_args()

    transcripts = list(files_below(args.corpus, TRANSCRIPT))
    if len(transcripts) != 1:
        count = f"{len(transcripts)} files {TRANSCRIPT} below {args.corpus}"
        raise ValueError(
            f"{count}, expected one: name the folder that holds LDC2002S09 and LDC2002T43 with "
            "--data"
        )

    turns = read_turns(transcripts[0])
    spheres = audio_files(args.corpus, ".sph", stem="[es][nw]_[0-9]*")
    tell_left_out("calls without audio", sorted({call for call, _ in turns} - spheres.keys()))
    calls = sorted({call for call, _ in turns} & spheres.keys())
    sides_to_wav([spheres[call] for call in calls], args.out / "wav", Executor(args.nj))

    parts: dict[str, list[Recording]] = {part: [] for part in PARTS.values()}
    for (call, side), turns_of_side in turns.items():
        if call not in spheres:
            continue

        ordered = sorted(turns_of_side, key=lambda turn: turn.start)
        parts[PARTS[call[:2]]] += recordings_of(
            call, side, ordered, args.out / "wav", args.min_slice_duration
        )

    write_parts(args.out, parts)
    copy_training_parts(args.fisher, args.out)


if __name__ == "__main__":
    run(main)
