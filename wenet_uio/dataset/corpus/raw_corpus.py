"""A raw list as a corpus: separate audio files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wenet_uio.dataset.corpus.base import Corpus, RemoteObject
from wenet_uio.dataset.corpus.columns import Visits, map_file, read_columns
from wenet_uio.dataset.corpus.index import TABLE_COLUMNS, Rows, Summary
from wenet_uio.dataset.corpus.indexing import index_of
from wenet_uio.dataset.formats.data_list import RawLine, locate, parse_raw_line
from wenet_uio.dataset.formats.sample_layout import DEFAULT_LAYOUT, Layout
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.types import SampleRef, Utterance


class LineCorpus(Corpus):
    """Samples of which each is a line of a file; a run of consecutive lines counts as a shard."""

    def __init__(self, path: str, columns: dict[str, np.ndarray], meta: dict[str, Any], *more: np.ndarray) -> None:
        """`columns` and `meta` are of the index of the lines of `path`; `more` files are read with it, mapped."""
        self._first = columns.pop("first_row")
        table = {name: columns.pop(name) for name in TABLE_COLUMNS}
        self._rows = Rows(**columns)
        self._lines = map_file(path)
        self._visits = Visits(self._rows.key_hash, self._lines, *more)
        super().__init__(path, table, [tuple(item) for item in meta["bad"]], Summary(**meta["summary"]))

    def rows(self, shard: int) -> Rows:
        self._visits.add()
        first = int(self._first[shard])
        return self._rows.slice(first, first + int(self.samples[shard]))


class RawCorpus(LineCorpus):
    """A raw list: audio files of their own."""

    def __init__(self, data_list: str, layout: Layout = DEFAULT_LAYOUT) -> None:
        columns, meta = read_columns(index_of(data_list, layout))
        self._layout = layout
        self._is_remote = meta.get("remote", False)
        self._copies = objects.HeldPaths()
        super().__init__(data_list, columns, meta)

    @property
    def is_remote(self) -> bool:
        return self._is_remote

    def remote_files(self, shards: Sequence[int] | np.ndarray, rows: Sequence[int] | np.ndarray) -> list[RemoteObject]:
        lines = (self._line(int(shard), int(row)) for shard, row in zip(shards, rows, strict=True))
        return [(line.wav, None) for line in lines if objects.is_remote(line.wav)]

    def read(self, ref: SampleRef) -> Utterance:
        line = self._line(ref.shard, ref.row)
        path = locate(line.wav, self.data_list)
        if objects.is_plain(path):
            audio: bytes | str = path
        elif line.start or line.end is not None:  # one of many of a long recording
            audio = self._copies.path_of(path)
        else:
            audio = objects.read_bytes(path)
        return Utterance(line.key, audio, line.text, line.start, line.end, extra=line.extra)

    def texts(self, ref: SampleRef) -> tuple[str, ...]:
        return (self._line(ref.shard, ref.row).text,)

    def _line(self, shard: int, row: int) -> RawLine:
        number = int(self._first[shard]) + row
        offset = int(self._rows.audio_offset[number])
        line = self._lines[offset : offset + int(self._rows.audio_size[number])]
        return parse_raw_line(line.tobytes(), self._layout.text_field)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return RawCorpus, (self.data_list, self._layout)
