"""Write alignments: CTM, TextGrid, scores, and a data list without the poor utterances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from wenet_uio.addons.listen.alignment import Alignment, Interval
from wenet_uio.base.files import written_aside
from wenet_uio.base.uris import shown
from wenet_uio.dataset.formats.data_list import RawLine, parse_raw_line, with_distinct_keys
from wenet_uio.dataset.formats.errors import ListError


def write_alignments(
    by_key: Mapping[str, Alignment], poor: Mapping[str, str], result_dir: str | Path
) -> None:
    """Write the files of an alignment to `result_dir`.

    words.ctm, tokens.ctm, scores (`key score` lines) and poor (`key reason` lines).
    """
    for tier in ("words", "tokens"):
        write_ctm(by_key, Path(result_dir, f"{tier}.ctm"), tier)

    with written_aside(Path(result_dir, "scores"), "w") as file:
        file.writelines(f"{key} {alignment.score:.4f}\n" for key, alignment in by_key.items())
    with written_aside(Path(result_dir, "poor"), "w") as file:
        file.writelines(shown(f"{key} {reason}\n") for key, reason in poor.items())


def write_textgrids(by_key: Mapping[str, Alignment], folder: str | Path) -> None:
    """Write a TextGrid for each utterance: `key.TextGrid`, with `_` in place of `/`."""
    for key, alignment in by_key.items():
        with written_aside(Path(folder, f"{key.replace('/', '_')}.TextGrid"), "w") as file:
            write_textgrid(alignment, file)


def write_ctm(alignments: Mapping[str, Alignment], path: str | Path, tier: str) -> None:
    """Write NIST's CTM, lines of `key 1 start duration text confidence`, of `words` or `tokens`."""
    with written_aside(path, "w") as file:
        for key, alignment in alignments.items():
            for interval in getattr(alignment, tier):
                times = f"{interval.start:.3f} {interval.end - interval.start:.3f}"
                file.write(f"{key} 1 {times} {interval.text} {interval.confidence:.3f}\n")


def write_textgrid(alignment: Alignment, file: IO[str]) -> None:
    """Write Praat's TextGrid in its long text format, with a tier of words and one of tokens."""
    end = max([alignment.seconds, *(token.end for token in alignment.tokens)])
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

        for interval_number, (start, stop, text) in enumerate(intervals, 1):
            file.write(
                f"        intervals [{interval_number}]:\n            xmin = {start:.3f}\n            xmax = "
                f"{stop:.3f}\n"
            )
            file.write('            text = "{}"\n'.format(text.replace('"', '""')))


def _without_gaps(intervals: Iterable[Interval], end: float) -> list[tuple[float, float, str]]:
    """List (start, end, text) of a tier; gaps become intervals without text, as Praat needs."""
    filled: list[tuple[float, float, str]] = []
    filled_until = 0.0
    for interval in intervals:
        if interval.start > filled_until:
            filled.append((filled_until, interval.start, ""))
        filled.append((interval.start, interval.end, interval.text))
        filled_until = interval.end

    if end > filled_until:
        filled.append((filled_until, end, ""))

    return filled


def write_clean_list(data_list: str | Path, path: str | Path, poor: Mapping[str, str]) -> int:
    """Write a raw list without the `poor` utterances and without unreadable lines.

    Returns:
        The number of lines kept.
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
        for line, utterance in zip(lines, with_distinct_keys(parsed), strict=True)
        if utterance.key not in poor
    ]
    with written_aside(path, "w") as file:
        file.writelines(line.rstrip("\n") + "\n" for line in kept)

    return len(kept)
