"""Texts without audio, and pairs of texts.

Text files are a corpus: one text a line, without audio. Two files form pairs of texts, line by
line.

The index is `x.txt.idx`, or `x.txt.<name of the other file>.idx` for a pair. The sample rate of a
text is TEXT_ONLY. The length of a text is its number of characters, or of tokens if they are
counted. The lengths of a pair are added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path

from wenet_uio.config.source import Paths, SourceConf, SourceType
from wenet_uio.dataset.corpus.base import Facts, Kind, Texts
from wenet_uio.dataset.corpus.index import TEXT_ONLY, Entry, Problem
from wenet_uio.dataset.corpus.raw_corpus import LineCorpus, indexed_lines
from wenet_uio.dataset.corpus.raw_index import BLANK
from wenet_uio.dataset.corpus.unread_audio import Unread
from wenet_uio.dataset.formats.data_list import lines_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.kind import Reading, SampleKind
from wenet_uio.dataset.sources.lists import expanded
from wenet_uio.dataset.types import (
    Operator,
    PairExample,
    PairUtterance,
    SampleRef,
    TextExample,
    TextUtterance,
)
from wenet_uio.text.characters import without_mark


class TextConf(SourceConf):
    """Text without audio, one text a line."""

    paths: Paths


class PairConf(SourceConf):
    """Two text files that are paired line by line."""

    source_paths: Paths
    target_paths: Paths
    questions_path: Paths | None = None
    """Text files of questions, one a line. Each pair gets one of them as its field `question`."""


def _open_texts(conf: TextConf) -> list[TextCorpus]:
    return [TextCorpus(path) for path in expanded(conf.paths)]


def _open_pairs(conf: PairConf) -> list[TextCorpus]:
    """Return the corpora of a source of pairs of texts: one for each pair of files."""
    targets, sources = expanded(conf.target_paths), expanded(conf.source_paths)
    if len(targets) != len(sources):
        raise ListError(f"txt_pair: {len(sources)} source_paths for {len(targets)} target_paths")

    questions = questions_of(expanded(conf.questions_path)) if conf.questions_path else ()
    return [
        TextCorpus(target, source, questions)
        for target, source in zip(targets, sources, strict=True)
    ]


TEXT = SourceType(TextConf, _open_texts, is_text=True)
PAIR = SourceType(PairConf, _open_pairs, is_text=True)


class TextCorpus(LineCorpus):
    """The lines of a text file. In a pair, a second file holds the source text of each line.

    Blank lines are left out. A line of a pair is left out if either text is blank. With
    `questions`, every pair has one of them in its field `question`, chosen by the hash of its key.
    """

    def __init__(
        self, path: str, source_path: str | None = None, questions: Sequence[str] = ()
    ) -> None:
        """Open a text file or a pair, and index it first if needed.

        Raises:
            ListError: a file is missing or empty, or the files of a pair differ in length.
        """
        for name in filter(None, (path, source_path)):
            if not os.path.isfile(name):  # noqa: PTH113 - Path.is_file raises if a folder may not be entered
                raise ListError(f"{name}: no such text file")

        self._source_path, self._questions = source_path, tuple(questions)
        paths, index = [path], f"{path}.idx"
        kind: Kind = "text"
        if source_path is not None:
            paths.append(source_path)
            index, kind = f"{path}.{Path(source_path).name}.idx", "pair"

        entries = partial(_entries, path, source_path)
        files, stored = indexed_lines(paths, index, entries)
        self._source_lines = files[1] if source_path is not None else None
        super().__init__(files[0], stored, Facts(frozenset({kind})))
        if not self.num_samples:
            raise ListError(f"{path}: holds no text")

    def read(self, ref: SampleRef) -> TextUtterance:
        """Return the text of a line, or the pair of texts."""
        rows = self.rows(ref.shard)
        text = _decode_line(self.line_of(ref))
        extra = {}
        if self._questions:
            extra["question"] = self._questions[int(rows.key_hash[ref.row]) % len(self._questions)]

        key = rows.key(ref.row)
        if self._source_lines is None:
            return TextUtterance(key, text, extra=extra)

        offset, size = int(rows.audio_offset[ref.row]), int(rows.audio_size[ref.row])
        source = _decode_line(self.line_at(self._source_lines, offset, size))
        return PairUtterance(key, text, source, extra=extra)

    def texts(self, ref: SampleRef) -> Texts:
        """Return the text of a line, and the first text of a pair."""
        utterance = self.read(ref)
        source = utterance.source if isinstance(utterance, PairUtterance) else None
        return Texts((utterance.text,), utterance.extra, source)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return TextCorpus, (self.data_list, self._source_path, self._questions)


def questions_of(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the questions in some text files, one a line.

    Raises:
        ListError: a file is missing, is not UTF-8, or holds no question.
    """
    questions: list[str] = []
    for path in paths:
        try:
            questions_of_file = [
                line.strip()
                for line in without_mark(Path(path).read_text(encoding="utf-8")).splitlines()
                if line.strip()
            ]
        except (OSError, UnicodeDecodeError) as error:
            raise ListError(f"{path}: questions cannot be read ({error})") from None

        if not questions_of_file:
            raise ListError(f"{path}: holds no question; write one a line")
        questions += questions_of_file

    return tuple(questions)


def _decode_line(line: bytes) -> str:
    """Return the text of a line, without the byte order mark before the first line of a file."""
    return without_mark(line.decode()).strip()


def _entries(
    path: str, source_path: str | None, bad: list[Problem], _unread: Unread
) -> Iterator[Entry]:
    """Yield the entry of each text of a file, or of each pair of two files; blank lines are no
    samples.
    """
    name = Path(path).name
    for number, line, source in _numbered_lines(path, source_path):
        key = f"{name}:{number}"
        (offset, text), (source_offset, source_text) = line, source or (0, b"")
        if not text.strip(BLANK) or (source is not None and not source_text.strip(BLANK)):
            if text.strip(BLANK) or source_text.strip(BLANK):
                bad.append((key, "blank in one file of the pair"))
            continue

        length = len(_decode_line(text)) + len(_decode_line(source_text))
        yield Entry(key, 0, TEXT_ONLY, length, source_offset, len(source_text), offset, len(text))


def _numbered_lines(
    path: str, source_path: str | None
) -> Iterator[tuple[int, tuple[int, bytes], tuple[int, bytes] | None]]:
    """Yield the line number, and offset and bytes of the line in each file.

    Raises:
        ListError: the files differ in length.
    """
    if source_path is None:
        for number, line in enumerate(lines_of(path), 1):
            yield number, line, None
        return

    for number, (line, source) in enumerate(zip_longest(lines_of(path), lines_of(source_path)), 1):
        if line is None or source is None:
            shorter, longer = (path, source_path) if line is None else (source_path, path)
            raise ListError(
                f"{shorter}: ends before line {number} of {longer}; a pair has equal numbers of "
                "lines"
            )
        yield number, line, source


class Text(SampleKind):
    """Texts without audio."""

    def example(self, utterance: TextUtterance, reading: Reading) -> TextExample:
        """Return the example of a text."""
        return TextExample(
            utterance.key, utterance.text, None, TEXT_ONLY, reading.random, extra=utterance.extra
        )

    def begin_chain(self, example: TextExample) -> tuple[TextExample, Sequence[Operator]]:
        """Return the example, and the operators on texts."""
        return example, self.chains.text


class Pair(Text):
    """Pairs of texts."""

    def example(self, utterance: PairUtterance, reading: Reading) -> PairExample:
        """Return the example of a pair of texts."""
        return PairExample(
            utterance.key,
            utterance.text,
            None,
            TEXT_ONLY,
            reading.random,
            extra=utterance.extra,
            source=utterance.source,
        )
