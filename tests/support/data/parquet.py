"""Parquet files as Hugging Face's hub has them, written by pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from wenet_uio.dataset.formats.data_list import RawLine

AUDIO = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
FILES = 2


def row_of(line: RawLine) -> dict[str, Any]:
    return {
        "audio": {"bytes": Path(line.wav).read_bytes(), "path": Path(line.wav).name},
        "sentence": line.text,
        "speaker_id": len(line.key),
    }


def write_table(path: Path, rows: Sequence[dict[str, Any]], group: int, **options: Any) -> None:
    table = pyarrow.Table.from_pylist(list(rows))
    typed = options.pop("typed", True)
    if "audio" in table.column_names and typed:
        index = table.column_names.index("audio")
        table = table.set_column(index, pyarrow.field("audio", AUDIO), table["audio"].cast(AUDIO))
    pyarrow.parquet.write_table(table, path, row_group_size=group, **options)


def write_parquet(lines: Sequence[RawLine], folder: Path, group: int, split: str = "train") -> None:
    """Write the lines to `train-00000-of-00002.parquet` and so on, with `group` rows in a row
    group.
    """
    cut = len(lines) // group // FILES * group + group * (len(lines) // group % FILES)
    for number, some in enumerate((lines[:cut], lines[cut:])):
        path = folder / f"{split}-{number:05d}-of-{FILES:05d}.parquet"
        if some:
            write_table(path, [row_of(line) for line in some], group)
