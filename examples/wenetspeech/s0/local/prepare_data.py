#!/usr/bin/env python3
"""WenetSpeech: Mandarin of many kinds from YouTube and podcasts, labelled by subtitles and by a
recogniser.

10,005 hours for training (subset L, which contains M with 1000 hours and S with 100), 16 kHz mono
opus; a development set, and the test sets TEST_NET (from the internet) and TEST_MEETING. Licence of
the labels: CC BY 4.0. The corpus is available on application (https://wenet.org.cn/WenetSpeech);
the recipe downloads nothing. https://arxiv.org/abs/2110.03370

Layout: `audio/{train,dev,test_net,test_meeting}/…/{aid}.opus`, whole recordings, and
`WenetSpeech.json`: `audios` is a list of recordings with `aid`, `path` and `segments`, each of
which has `sid`, `begin_time`, `end_time` (seconds), `subsets` and `text`. The file is read into
memory as a whole. Missing recordings are counted and left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wenet_uio.base.cli import run
from wenet_uio.prepare.corpus_parts import (
    Recording,
    preparation_parser,
    require_in,
    tell_left_out,
    write_parts,
)
from wenet_uio.text.normalize import mandarin

METADATA = "WenetSpeech.json"


def read_subsets(corpus: Path, part_of: dict[str, str]) -> dict[str, list[Recording]]:
    """Read the segments of each part.

    Those without times, text or audio are left out and counted on stderr.

    Args:
        part_of: subset -> the part it belongs to.
    """
    with open(corpus / METADATA, encoding="utf-8") as file:
        audios = json.load(file)["audios"]

    parts: dict[str, list[Recording]] = {part: [] for part in part_of.values()}
    missing, without_text, without_times = [], [], []
    for audio in audios:
        segments = list(segments_of(audio, part_of))
        wav = corpus / audio["path"]
        if segments and not wav.is_file():
            missing.append(audio["aid"])
            continue

        for part, segment in segments:
            sid, text = segment["sid"], mandarin(segment.get("text", ""))
            if "begin_time" not in segment or "end_time" not in segment:
                without_times.append(sid)
                continue

            if not text:
                without_text.append(sid)
                continue

            start, end = float(segment["begin_time"]), float(segment["end_time"])
            parts[part].append(Recording(sid, wav, text, start, end))

    tell_left_out("recordings that are not there", missing)
    tell_left_out("segments without times", without_times)
    tell_left_out("segments without text", without_text)
    return parts


def segments_of(
    audio: dict[str, Any], part_of: dict[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield parts and segments of a recording whose subset is in `part_of`."""
    for segment in audio["segments"]:
        for subset in segment.get("subsets", ()):
            if subset in part_of:
                yield part_of[subset], segment


def main() -> None:
    """Read the segments of the subsets and write the parts."""
    parser = preparation_parser(__doc__, f"folder that holds {METADATA} and audio/")
    parser.add_argument(
        "--subset",
        choices=("L", "M", "S"),
        default="L",
        help="subset for training (default: %(default)s)",
    )
    args = parser.parse_args()
    require_in(args.corpus, METADATA, "audio")
    part_of = {
        args.subset: "train",
        "DEV": "dev",
        "TEST_NET": "test_net",
        "TEST_MEETING": "test_meeting",
    }
    write_parts(args.out, read_subsets(args.corpus, part_of))


if __name__ == "__main__":
    run(main)
