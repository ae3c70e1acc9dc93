"""Files whose lines are samples, as corpora: raw lists, where every sample is an audio file or a segment
of one, and the index of other files of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from wenet_uio.base.files import digest_of
from wenet_uio.dataset.corpus.base import Facts, Numbers, RemoteObject, StoredCorpus, Texts
from wenet_uio.dataset.corpus.columns import release_pages
from wenet_uio.dataset.corpus.index import (
    TABLE_COLUMNS,
    Entry,
    ListIndex,
    Problem,
    Rows,
    Stored,
    rows_of,
    rows_of_shards,
    summary_of,
)
from wenet_uio.dataset.corpus.raw_index import UTTERANCES_PER_RUN, table_of_runs
from wenet_uio.dataset.corpus.unread_audio import Unread, has_returned
from wenet_uio.dataset.formats.data_list import RawLine, locate, parse_raw_line
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.list_file import FileState, LineFile
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.kept_files import making, places_of
from wenet_uio.dataset.types import AudioUtterance, SampleRef

VISITS = 16
"""Visits to the index after which its pages are dropped from memory, so that they do not add up. A
batch makes a few visits."""


class LineCorpus(StoredCorpus):
    """Samples that are lines of a file. A run of consecutive lines counts as a shard. A subclass
    implements `read`.
    """

    def __init__(self, lines: LineFile, index: ListIndex, facts: Facts) -> None:
        """`index` is that of `lines`."""
        columns = dict(index.columns)
        self._first_row = columns.pop("first_row")
        table = {name: columns.pop(name) for name in TABLE_COLUMNS}
        self._rows = Rows(**columns, key_start=0, tar_pages="")
        self._lines, self._index = lines, index
        self._visits = 0
        super().__init__(lines.path, table, index.bad, index.summary, facts)

    @property
    def contents_digest(self) -> str:
        """Digest of the lines."""
        return self._lines.digest

    def rows(self, shard: int) -> Rows:
        """Return the index of one shard: a run of lines."""
        self._visits += 1
        if self._visits % VISITS == 0:
            release_pages(self._rows.key_hash)

        first = int(self._first_row[shard])
        return self._rows.slice(first, first + int(self.samples[shard]))

    def lengths(self, shards: np.ndarray) -> Stored:
        """Return lengths of all samples of these shards: the columns are those of all lines."""
        rows = rows_of_shards(self._first_row, self.samples, shards)
        return Stored(*(getattr(self._rows, name)[rows] for name in Stored._fields))

    def line_of(self, ref: SampleRef) -> bytes:
        """Read the line with the text of a sample; `text_offset` of the index is its place."""
        rows = self.rows(ref.shard)
        offset, size = int(rows.text_offset[ref.row]), int(rows.text_size[ref.row])
        return self.line_at(self._lines, offset, size)

    def line_at(self, lines: LineFile, offset: int, size: int) -> bytes:
        """Read bytes of a file that the index says.

        Raises:
            ListError: the file has changed, or has no such bytes.
        """
        if offset + size > lines.size:
            raise self.damaged(f"{lines.path} has no {size} bytes from byte {offset} on")
        return lines.read(offset, size)

    def damaged(self, reason: str) -> ListError:
        """Return the error for a sample that the index does not describe as it is."""
        return ListError(f"{self._index.path}: damaged ({reason}); delete it to have it rebuilt")


class RawCorpus(LineCorpus):
    """A raw list."""

    def __init__(self, lines: LineFile, index: ListIndex, layout: Layout = DEFAULT_LAYOUT) -> None:
        """`index` is that of the open list `lines`, see `index_of_file`."""
        self._layout = layout
        self._copies = objects.shared_paths()
        super().__init__(lines, index, Facts.of_list(lines.path, index))

    @property
    def text_field(self) -> str | None:
        """The field of the text, if it is not one of the usual names; see `Layout`."""
        return self._layout.text_field

    def remote_files(self, shards: Numbers, rows: Numbers) -> list[RemoteObject]:
        """Return the remote audio files of these samples; their versions are not known."""
        lines = (
            self._parse_line(int(shard), int(row)) for shard, row in zip(shards, rows, strict=True)
        )
        return [(line.wav, None) for line in lines if objects.is_remote(line.wav)]

    def read(self, ref: SampleRef) -> AudioUtterance:
        """Parse the line of a sample. `AudioUtterance.audio` is the path of a local file, or the bytes
        of a remote file.
        """
        line = self._parse_line(ref.shard, ref.row)
        path = locate(line.wav, self.data_list)
        if objects.is_plain(path):
            audio: bytes | str = path
        elif line.start or line.end is not None:
            # Other segments of the same file will follow: keep a copy
            try:
                audio = self._copies.path_of(path)
            except objects.CacheFullError:
                audio = objects.read_bytes(path)
        else:
            audio = objects.read_bytes(path)

        # The index may have put folders in front of the key, if other lines have audio of the same
        # name.
        key = self.key(ref) if line.is_named_by_audio else line.key
        return AudioUtterance(key, line.text, audio, line.start, line.end, extra=line.extra)

    def texts(self, ref: SampleRef) -> Texts:
        """Return the text of a sample; reads no audio."""
        line = self._parse_line(ref.shard, ref.row)
        return Texts((line.text,), line.extra)

    def _parse_line(self, shard: int, row: int) -> RawLine:
        number = int(self._first_row[shard]) + row
        offset = int(self._rows.audio_offset[number])
        text = self.line_at(self._lines, offset, int(self._rows.audio_size[number]))
        try:
            line = parse_raw_line(text, self._layout.text_field)
        except ListError as error:  # the line could be read when it was indexed
            raise self.damaged(f"no line is at byte {offset}: {error}") from None

        # The index may have put folders or a number beside a key that the line does not state.
        key = self._rows.key(number)
        if line.key not in key:
            raise self.damaged(f"the line at byte {offset} has the key {line.key}, not {key}")
        return line

    def __reduce__(self) -> tuple[Callable, tuple]:
        return RawCorpus, (self._lines, self._index, self._layout)


Entries = Callable[[list[Problem], Unread], Iterable[Entry]]
"""Gives the samples of files of lines; it adds (key, reason) of each unusable line to the list, and audio
that cannot be read to the other argument."""


def indexed_lines(
    paths: Sequence[str], index: str, entries: Entries
) -> tuple[list[LineFile], ListIndex]:
    """Return files whose lines belong together, and their index, which is made first if it is
    missing or damaged, or a file has changed.

    The digest of the samples also covers the content of the files: texts of equal length with other
    words differ.

    Args:
        paths: the files, such as both files of a pair.
        index: path of their index.
        entries: gives the samples of the files.

    Raises:
        OSError: the system does not give a local audio file.
    """
    stored = _current_index(index, paths)
    if stored is None or has_returned(stored.meta, paths[0]):
        with making(places_of(index)):
            made_meanwhile = _current_index(index, paths)
            if made_meanwhile and not (stored and stored.meta == made_meanwhile.meta):
                stored = made_meanwhile
            else:
                stored = _make_index(paths, index, entries)

    digests = stored.summary.digest.split()[1:]
    files: list[LineFile] = []
    for (path, size, mtime_ns), digest in zip(stored.meta["files"], digests, strict=True):
        files.append(LineFile(path, FileState(size, mtime_ns, digest)))

    return files, stored


def _current_index(index: str, paths: Sequence[str]) -> ListIndex | None:
    """Return the index of the present files, if there is any; of several, the first of those that
    lack least audio.
    """
    files = _file_states(paths)
    stored = filter(None, map(ListIndex.find, places_of(index)))
    current = [index for index in stored if index.meta.get("files") == files]
    return min(current, key=lambda index: len(index.meta.get("unread", ())), default=None)


def _file_states(paths: Sequence[str]) -> list[list]:
    """Return what tells that the files have not changed, as JSON has it."""
    statuses = [(path, Path(path).stat()) for path in paths]
    return [[path, status.st_size, status.st_mtime_ns] for path, status in statuses]


def _make_index(paths: Sequence[str], index: str, entries: Entries) -> ListIndex:
    """Make the index of files of lines, and write it."""
    files = _file_states(paths)
    # Before the lines are read: a file that is replaced meanwhile has another digest.
    digests = [digest_of(path) for path in paths]
    bad: list[Problem] = []
    unread: Unread = {}
    rows = rows_of(list(entries(bad, unread)))
    first = np.arange(0, len(rows), UTTERANCES_PER_RUN)
    columns = table_of_runs(rows, first, np.minimum(first + UTTERANCES_PER_RUN, len(rows)))
    summary = summary_of(columns)
    values = {**asdict(summary), "digest": " ".join([summary.digest, *digests])}
    meta = {"files": files, "bad": bad, "summary": values}
    if unread:
        meta["unread"] = unread

    return ListIndex.write(places_of(index), columns, meta)
