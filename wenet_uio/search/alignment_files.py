"""Write alignments: CTM, TextGrid, scores, and a data list without the poor utterances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from wenet_uio.dataset.formats.data_list import (
    ListError,
    RawLine,
    parse_raw_line,
    with_distinct_keys,
)
from wenet_uio.files import written_aside
from wenet_uio.search.alignment import Alignment, Interval
from wenet_uio.uris import shown


def write_alignments(
    by_key: Mapping[str, Alignment], poor: Mapping[str, str], result_dir: str | Path
) -> None:
    """Write words.ctm, tokens.ctm, scores (`key score` lines) and poor (`key reason` lines) to
    RESULT_DIR.
    """
    for tier in ("words", "tokens"):
        write_ctm(by_key, Path(result_dir, f"{tier}.ctm"), tier)
    with written_aside(Path(result_dir, "scores"), "w") as file:
        file.writelines(f"{key} {each.score:.4f}\n" for key, each in by_key.items())
    with written_aside(Path(result_dir, "poor"), "w") as file:
        file.writelines(shown(f"{key} {reason}\n") for key, reason in poor.items())


def write_textgrids(by_key: Mapping[str, Alignment], folder: str | Path) -> None:
    """Write a TextGrid for each utterance, named `key.TextGrid` with `_` for each `/` of the
    key.
    """
    for key, each in by_key.items():
        with written_aside(Path(folder, f"{key.replace('/', '_')}.TextGrid"), "w") as file:
            write_textgrid(each, file)


def write_ctm(alignments: Mapping[str, Alignment], path: str | Path, tier: str) -> None:
    """Write `key 1 start duration text confidence` lines (NIST's CTM) for the tier `words` or
    `tokens`.
    """
    with written_aside(path, "w") as file:
        for key, alignment in alignments.items():
            for each in getattr(alignment, tier):
                length = each.end - each.start
                file.write(
                    f"{key} 1 {each.start:.3f} {length:.3f} {each.text} {each.confidence:.3f}\n"
                )


def write_textgrid(alignment: Alignment, file: IO[str]) -> None:
    """Write a TextGrid of Praat in its long text format, with a tier of words and a tier of
    tokens.
    """
    end = max([alignment.seconds, *(each.end for each in alignment.tokens)])
    file.write('File type = "ooTextFile"\nObject class = "TextGrid"\n\n')
    file.write(f"xmin = 0\nxmax = {end:.3f}\ntiers? <exists>\nsize = 2\nitem []:\n")
    for number, tier in enumerate(("words", "tokens"), 1):
        intervals = _without_gaps(getattr(alignment, tier), end)
        file.write(
            f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{tier}"\n'
        )
        file.write(
            f"        xmin = 0\n        xmax = {end:.3f}\n        intervals: size = "
            f"{len(intervals)}\n"
        )
        for place, (start, stop, text) in enumerate(intervals, 1):
            file.write(
                f"        intervals [{place}]:\n            xmin = {start:.3f}\n            xmax = "
                f"{stop:.3f}\n"
            )
            file.write('            text = "{}"\n'.format(text.replace('"', '""')))


def _without_gaps(intervals: Iterable[Interval], end: float) -> list[tuple[float, float, str]]:
    """(start, end, text) of a tier; gaps between the intervals become intervals with an empty text,
    as Praat needs.
    """
    filled: list[tuple[float, float, str]] = []
    place = 0.0
    for each in intervals:
        if each.start > place:
            filled.append((place, each.start, ""))
        filled.append((each.start, each.end, each.text))
        place = each.end
    if end > place:
        filled.append((place, end, ""))
    return filled


def write_clean_list(data_list: str | Path, path: str | Path, poor: Mapping[str, str]) -> int:
    """Write a raw list without the `poor` utterances and without unreadable lines; returns the
    number of lines kept.
    """
    lines: list[str] = []
    parsed: list[RawLine] = []
    with open(data_list, encoding="utf-8") as source:
        for line in source:
            try:
                parsed.append(parse_raw_line(line))
            except ListError:
                continue
            lines.append(line)
    kept = [
        line
        for line, each in zip(lines, with_distinct_keys(parsed), strict=True)
        if each.key not in poor
    ]
    with written_aside(path, "w") as file:
        file.writelines(line.rstrip("\n") + "\n" for line in kept)
    return len(kept)
