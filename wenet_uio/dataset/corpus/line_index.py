"""The index of a file whose lines are samples, for files that are no data lists: made once, beside
the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from wenet_uio.base.files import digest_of
from wenet_uio.dataset.corpus.columns import find_columns
from wenet_uio.dataset.corpus.index import Entry, ListIndex, Problem, rows_of, summary_of
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN, Columns, table_of_runs
from wenet_uio.dataset.corpus.unread_audio import Unread, has_returned
from wenet_uio.dataset.formats.list_file import FileState, LineFile
from wenet_uio.dataset.storage.kept_files import making, places_of

Entries = Callable[[list[Problem], Unread], Iterable[Entry]]
"""Gives the samples of a file; it adds (key, reason) of each unusable line to the list, and audio
that cannot be read to the other argument."""


def indexed_lines(path: str, index: str, entries: Entries) -> tuple[LineFile, Columns, dict]:
    """Return the file, and columns and meta of its index, which is made first if it is missing or
    the file has changed.

    The digest of the samples also covers the content of the file: texts of equal length with other
    words differ.

    Args:
        path: the file.
        index: path of its index.
        entries: gives the samples of the file.

    Raises:
        OSError: the system does not give a local audio file.
    """
    columns, meta = _found(index, path)
    if not meta or has_returned(meta, path):
        with making(places_of(index)):
            columns, made_meanwhile = _found(index, path)
            if made_meanwhile == meta:
                columns, meta = _made(path, index, entries)
            else:
                meta = made_meanwhile

    _, size, mtime_ns = meta["file"]
    return LineFile(path, FileState(size, mtime_ns, meta["digest"])), columns, meta


def _found(index: str, path: str) -> tuple[Columns, dict]:
    """Return columns and meta of the index, empty without one; of several, that which lacks least
    audio.
    """
    file = _state_of(path)
    stored = [columns for place in places_of(index) if (columns := find_columns(place))]
    current = [(columns, meta) for columns, meta in stored if meta.get("file") == file]
    return min(current, key=lambda each: len(each[1].get("unread", ())), default=({}, {}))


def _state_of(path: str) -> list:
    """Return what tells that a file has not changed, as JSON has it."""
    status = Path(path).stat()
    return [path, status.st_size, status.st_mtime_ns]


def _made(path: str, index: str, entries: Entries) -> tuple[Columns, dict]:
    """Make the index of a file of lines, and write it."""
    file = _state_of(path)
    # Before the lines are read: a file that is replaced meanwhile has another digest.
    digest = digest_of(path)
    bad: list[Problem] = []
    unread: Unread = {}
    rows = rows_of(list(entries(bad, unread)))
    first = np.arange(0, len(rows), UTTERANCES_PER_RUN)
    columns = table_of_runs(rows, first, np.minimum(first + UTTERANCES_PER_RUN, len(rows)))
    summary = summary_of(columns)
    values = {**asdict(summary), "digest": f"{summary.digest} {digest}"}
    meta = {"file": file, "digest": digest, "bad": bad, "summary": values}
    if unread:
        meta["unread"] = unread

    written = ListIndex.write(places_of(index), columns, meta)
    return written.columns, written.meta
