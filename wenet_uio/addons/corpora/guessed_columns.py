"""Guess what the columns of a table hold that no name tells."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from statistics import mean

from wenet_uio.prepare.columns import (
    NUMBERED,
    SAMPLED,
    Choice,
    Columns,
    IsAudio,
    NamedColumns,
    audio_share,
    cell_at,
    known_columns,
    name_columns,
    parse_seconds,
    sample_rows,
    text_column_note,
)

ENOUGH = 0.5
"""The cells of a column of audio are files in more than this share of its rows."""
IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
WORD = re.compile(r"[^\W\d_]+")


def guess_columns(
    rows: Sequence[Sequence[str]], choice: Choice, is_audio: IsAudio
) -> Columns | None:
    """Find out what the columns of a table are.

    The first row names the columns if one of its cells is a known word, or if it names no audio
    where the rows below do. A column that no word tells is guessed: the audio has cells that name
    files, the text has the most words.

    Returns:
        the columns, without `wav` if no column has audio; None if there is no column of texts.

    Raises:
        ListError: a chosen column does not exist.
    """
    header, sample = rows[0], sample_rows(rows)
    known = known_columns(rows, choice, is_audio)
    column_of, has_header = dict(known.column_of), known.has_header
    audio = _guess_audio(sample, known, is_audio)
    if audio is not None:
        column_of = {name: column for name, column in column_of.items() if column != audio}
        column_of["wav"] = audio
        has_header = has_header or not is_audio(header[audio])
    elif not column_of and _are_times(rows):
        column_of = {"start": 0, "end": 1}

    text = _guess_text(sample, column_of)
    if text is not None:
        column_of["text"] = text
    if "text" not in column_of:
        return None

    notes = _audio_notes(header, has_header, audio)
    notes += _text_notes(header, has_header, text, len(column_of))
    notes = notes or text_column_note(header, known)
    return name_columns(header, column_of, has_header, notes)


def _guess_audio(
    sample: Sequence[Sequence[str]], known: NamedColumns, is_audio: IsAudio
) -> int | None:
    """Return the column whose cells are files, if no column of audio is named or it has no file."""
    if known.has_audio(sample, is_audio):
        return None

    other_columns = {column for name, column in known.column_of.items() if name != "wav"}
    shares = {
        column: audio_share(sample, column, is_audio)
        for column in _free_columns(sample, other_columns)
    }
    return _best_column(shares, ENOUGH)


def _free_columns(sample: Sequence[Sequence[str]], taken: Collection[int]) -> list[int]:
    """Return the columns of a table that are not taken."""
    return [column for column in range(max(map(len, sample))) if column not in taken]


def _best_column(score_of: Mapping[int, float], least: float) -> int | None:
    """Return the column of the highest score, the first of several; None if no score is more than
    `least`.
    """
    best = max(score_of, key=lambda column: score_of[column], default=None)
    return best if best is not None and score_of[best] > least else None


def _are_times(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the rows of a table without names begin with two times in order, as labels of
    Audacity do.
    """
    for row in rows[:SAMPLED]:
        start, end = parse_seconds(cell_at(row, 0)), parse_seconds(cell_at(row, 1))
        if start is None or end is None or not start <= end:
            return False

    return True


def _guess_text(sample: Sequence[Sequence[str]], column_of: Mapping[str, int]) -> int | None:
    """Return the column with the most words, of which many differ, if no column of texts is named.

    None if none has a letter.
    """
    if "text" in column_of:
        return None

    words: dict[int, float] = {}
    for column in _free_columns(sample, column_of.values()):
        words[column] = _mean_words([cell_at(row, column) for row in sample])
    return _best_column(words, 0)


def _mean_words(cells: Sequence[str]) -> float:
    """Return the mean number of words, weighed by how many of the cells differ."""
    counts = [len(WORD.findall(cell)) + len(IDEOGRAPH.findall(cell)) for cell in cells]
    return mean(counts) * len(set(cells)) / len(cells)


def _audio_notes(header: Sequence[str], has_header: bool, column: int | None) -> list[str]:
    """Say which column is guessed to be the audio, unless rows are plainly `audio, text`."""
    if column is None or (column == 0 and len(header) == 2 and not has_header):
        return []
    return [_guess_note(header, has_header, column, "audio", "its cells are files")]


def _text_notes(
    header: Sequence[str], has_header: bool, column: int | None, understood: int
) -> list[str]:
    """Say which column is guessed to be the text, if there was a choice."""
    if column is None or len(header) == understood:
        return []
    return [_guess_note(header, has_header, column, "text", "it has the most words")]


def _guess_note(
    header: Sequence[str], has_header: bool, column: int, meaning: str, reason: str
) -> str:
    name = header[column] if has_header and header[column] else NUMBERED.format(column + 1)
    return f"{name} is taken for the {meaning}: {reason}; --{meaning}_field takes another column"
