"""Read lists, manifests of NeMo, Kaldi directories and cuts of Lhotse.

A reader of a form (`forms.py`) takes a path, and the field with the text if it is given. It gives
`RawLine`s.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from wenet_uio.dataset.formats.data_list import RawLine, locate, parse_raw_line, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.lhotse_cuts import read_cuts, utterance_of
from wenet_uio.dataset.formats.rows import AUDIO_COLUMNS, TEXT_COLUMNS
from wenet_uio.prepare.kaldi_tables import read_filled_table, read_utterances
from wenet_uio.text.table import numbered_lines

HUB_TABLE = "metadata.jsonl"
"""Name of the table that Hugging Face's folders of audio have."""
KALDI_TABLES = {"utt2dur": "duration", "utt2spk": "speaker", "utt2lang": "language"}
"""Kaldi tables with one field of each utterance, by the name of the field in `RawLine.extra`."""


def _rename_hub_fields(text: str, text_field: str | None) -> str:
    """Return a line of JSON in which the audio is `wav` and the text is `txt`.

    Tables may have them under any of their known names.

    A text that `text_field` names keeps its name.

    Raises:
        ListError: not a JSON object.
    """
    values = values_of(text)
    columns: dict[str, tuple[str, ...]] = {"wav": AUDIO_COLUMNS}
    if not text_field:
        columns["txt"] = TEXT_COLUMNS

    for our_name, names in columns.items():
        name = next((name for name in names if name in values), None)
        if name is not None:
            values[our_name] = values.pop(name)

    return json.dumps(values)


def read_list(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read a raw list, a NeMo manifest, or metadata.jsonl of Hugging Face's folders of audio.

    Raises:
        ListError: a line is not valid; the message names file and line.
    """
    lines = []
    is_hub_table = Path(path).name.lower() == HUB_TABLE
    for number, text in numbered_lines(path):
        if not text.strip():
            continue

        try:
            if is_hub_table:
                text = _rename_hub_fields(text, text_field)
            line = parse_raw_line(text, text_field)
        except ListError as error:
            raise ListError(f"{path}:{number}: {error}") from None

        lines.append(replace(line, wav=locate(line.wav, path)))

    return lines


def read_kaldi(
    folder: str, text_field: str | None = None, with_commands: bool = False
) -> list[RawLine]:
    """Read a Kaldi directory: `wav.scp` and `text`.

    `segments`, `utt2dur`, `utt2spk` and `utt2lang` are read if they exist.

    Args:
        with_commands: commands may stand for audio; they are returned as they are.

    Raises:
        ListError: there is no such folder, or the tables do not fit together.
    """
    _refuse_field(folder, text_field)
    if not Path(folder).is_dir():
        raise ListError(
            f"{folder}: no such folder; expected a Kaldi directory with wav.scp and text"
        )

    segments = Path(folder, "segments")
    lines = read_utterances(
        str(Path(folder, "wav.scp")),
        str(Path(folder, "text")),
        str(segments) if segments.exists() else None,
        with_commands=with_commands,
    )
    for table, field in KALDI_TABLES.items():
        path = Path(folder, table)
        if path.exists():
            lines = _add_field(lines, field, read_filled_table(str(path)))

    return lines


def _add_field(lines: list[RawLine], field: str, values: dict[str, str]) -> list[RawLine]:
    """Return the lines with a field of a table; a line that the table lacks stays as it is."""
    parse = float if field == "duration" else str
    extended: list[RawLine] = []
    for line in lines:
        if line.key in values:
            line = replace(line, extra={**line.extra, field: parse(values[line.key])})
        extended.append(line)

    return extended


def read_lhotse(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read Lhotse cuts, each of which is a part of one recording.

    Raises:
        ListError: lhotse is not installed, the file is damaged, or a cut has no form as a RawLine.
    """
    _refuse_field(path, text_field)
    lines: list[RawLine] = []
    bad: list[tuple[str, str]] = []
    for cut in read_cuts(path, bad):
        try:
            lines.append(utterance_of(cut))
        except ListError as error:
            raise ListError(f"{path}: cut {cut.id}: {error}") from None

    if bad:
        raise ListError(": ".join(bad[0]))

    return lines


def _refuse_field(path: str, text_field: str | None) -> None:
    """Raise ListError if a field of the text is given for a form that has only one text."""
    if text_field:
        raise ListError(f"{path}: has one text for each utterance; leave --text_field out")
