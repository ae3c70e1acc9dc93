"""Files of text without audio, a text a line, as a corpus: for the decoder, and for pairs of texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import zip_longest

import numpy as np

from wenet_uio.dataset.corpus.columns import is_index, map_file, read_columns, write_columns
from wenet_uio.dataset.corpus.index import TEXT_ONLY, Entry, rows_of, shard_table, summary_of
from wenet_uio.dataset.corpus.indexing import UTTERANCES_PER_RUN
from wenet_uio.dataset.corpus.raw_corpus import LineCorpus
from wenet_uio.dataset.formats.data_list import ListError, lines_of
from wenet_uio.dataset.types import SampleRef, Utterance
from wenet_uio.files import digest_of, locked, written_aside


class TextCorpus(LineCorpus):
    """Lines of a file, each a text; in a pair the lines of a second file are what they answer to.

    Blank lines are left out; of a pair, so is a line whose partner is.
    """

    def __init__(self, path: str, source_path: str | None = None) -> None:
        """
        Raises:
            ListError: no such file, an empty one, or two of different length.
        """
        for name in filter(None, (path, source_path)):
            if not os.path.isfile(name):
                raise ListError(f"{name}: no such text file")
        self._source_path = source_path
        self._sources = [map_file(source_path)] if source_path is not None else []
        super().__init__(path, *_read_or_build(path, source_path), *self._sources)
        if not self.num_samples:
            raise ListError(f"{path}: holds no text")

    def read(self, ref: SampleRef) -> Utterance:
        rows = self.rows(ref.shard)
        text = _text(self._lines, rows.text_offset[ref.row], rows.text_size[ref.row])
        source = None
        for lines in self._sources:
            source = _text(lines, rows.audio_offset[ref.row], rows.audio_size[ref.row])
        return Utterance(rows.key(ref.row), None, text, source=source)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return TextCorpus, (self.data_list, self._source_path)


def _text(lines: np.ndarray, offset: int, size: int) -> str:
    return lines[int(offset) : int(offset) + int(size)].tobytes().decode().strip()


def _read_or_build(path: str, source_path: str | None) -> tuple[dict[str, np.ndarray], dict]:
    """The index of a text or a pair, made first where there is none or the files have changed."""
    index = f"{path}.idx" if source_path is None else f"{path}.{os.path.basename(source_path)}.idx"
    with locked(path):
        found = [(name, os.stat(name)) for name in filter(None, (path, source_path))]
        fingerprint = [[name, status.st_size, status.st_mtime_ns] for name, status in found]
        if is_index(index):
            columns, meta = read_columns(index)
            if meta.get("files") == fingerprint:
                return columns, meta
        columns, bad = _index(path, source_path)
        # Texts are not in the rows' digest, which knows lengths: other words of equal length are other data.
        summary = summary_of(columns)
        texts = " ".join([summary.digest, *(digest_of(name) for name, _ in found)])
        meta = {"files": fingerprint, "bad": bad, "summary": {**asdict(summary), "digest": texts}}
        with written_aside(index) as file:
            write_columns(file, columns, meta)
        return read_columns(index)


def _index(path: str, source_path: str | None) -> tuple[dict[str, np.ndarray], list[tuple[str, str]]]:
    name = os.path.basename(path)
    entries: list[Entry] = []
    bad: list[tuple[str, str]] = []
    for number, line, source in _pairs(path, source_path):
        key = f"{name}:{number}"
        (offset, text), (source_offset, source_text) = line, source or (0, b"")
        if not text.strip() or (source is not None and not source_text.strip()):
            if text.strip() or source_text.strip():
                bad.append((key, "blank in one file of the pair"))
            continue
        length = len(text.decode().strip()) + len(source_text.decode().strip())
        entries.append(Entry(key, 0, TEXT_ONLY, length, source_offset, len(source_text), offset, len(text)))
    rows = rows_of(entries)
    first = np.arange(0, len(rows), UTTERANCES_PER_RUN)
    table = shard_table(rows.slice(int(a), min(int(a) + UTTERANCES_PER_RUN, len(rows))) for a in first)
    return {**rows.columns(), **table, "first_row": first}, bad


def _pairs(path: str, source_path: str | None) -> Iterator[tuple[int, tuple[int, bytes], tuple[int, bytes] | None]]:
    """Line number, and offset and bytes of the line of each file.

    Raises:
        ListError: the files differ in length.
    """
    if source_path is None:
        for number, line in enumerate(lines_of(path), 1):
            yield number, line, None
        return
    for number, (line, source) in enumerate(zip_longest(lines_of(path), lines_of(source_path)), 1):
        if line is None or source is None:
            ended, other = (path, source_path) if line is None else (source_path, path)
            raise ListError(f"{ended}: ends before line {number} of {other}; a pair has equal numbers of lines")
        yield number, line, source
