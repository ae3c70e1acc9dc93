"""Texts that an operator speaks, as a corpus: every line is a sample with the length that the plan
counts for it.

The length is the `duration` that a line states, or else SECONDS_OF_TEXT and `seconds_per_character`
for each character that is spoken. It bounds the speech: the reader leaves out speech that is
longer. The plan treats the samples as audio.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from wenet_uio.audio.decoders import MOST_SAMPLES
from wenet_uio.dataset.corpus.base import Kind, Texts
from wenet_uio.dataset.corpus.index import Entry, Problem
from wenet_uio.dataset.corpus.line_index import indexed_lines
from wenet_uio.dataset.corpus.raw_corpus import LineCorpus
from wenet_uio.dataset.corpus.unread_audio import Unread
from wenet_uio.dataset.formats.data_list import lines_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.to_speak.line import TtsText, is_manifest, parse_tts_text
from wenet_uio.dataset.types import SampleRef, UtteranceToSpeak
from wenet_uio.text.characters import without_mark

PLANNED_RATE = 1000
"""Hz; the sample rate in the index. Lengths are planned in milliseconds."""

SECONDS_OF_TEXT = 0.5
"""Seconds that are planned for any text: a single letter takes as long as several letters of a
word."""


class TtsTextCorpus(LineCorpus):
    """The texts of a manifest or of a plain text file."""

    def __init__(
        self, path: str, seconds_per_character: float, speakers: Sequence[str] = ()
    ) -> None:
        """Open a file of texts, and index it first if needed.

        Args:
            path: JSON lines, or plain text with one text a line; its first line tells which.
            seconds_per_character: longest speech that is planned for a character, besides
                SECONDS_OF_TEXT.
            speakers: of texts that do not name a speaker.

        Raises:
            ListError: the file is missing, or holds no text.
        """
        if not Path(path).is_file():
            raise ListError(f"{path}: no such file of texts to speak")

        self._per_character, self._speakers = seconds_per_character, tuple(speakers)
        first = next((line for _, line in lines_of(path) if line.strip()), b"")
        self._is_manifest = is_manifest(first)
        entries = partial(_entries, path, self._is_manifest, seconds_per_character)
        super().__init__(
            *indexed_lines(path, f"{path}.spoken-{seconds_per_character:g}.idx", entries)
        )

        if not self.num_samples:
            reasons = "; ".join(f"{key}: {reason}" for key, reason in self.bad[:3])
            raise ListError(
                f"{path}: holds no text to speak" + (f" ({reasons})" if reasons else "")
            )

        if speakers:
            self.digest += (
                " " + hashlib.blake2b(repr(self._speakers).encode(), digest_size=8).hexdigest()
            )

    @property
    def kinds(self) -> frozenset[Kind]:
        """Texts to speak."""
        return frozenset({"to_speak"})

    def read(self, ref: SampleRef) -> UtteranceToSpeak:
        """Return the text of a line, and what is to be spoken."""
        line = self._line(ref)
        return UtteranceToSpeak(
            self.key(ref), line.text, line.to_speak, self._speakers, extra=line.extra
        )

    def texts(self, ref: SampleRef) -> Texts:
        """Return the text that is learned."""
        line = self._line(ref)
        return Texts((line.text,), line.extra)

    def _line(self, ref: SampleRef) -> TtsText:
        rows = self.rows(ref.shard)
        line = self._lines.read(int(rows.text_offset[ref.row]), int(rows.text_size[ref.row]))
        return parse_tts_text(line, manifest=self._is_manifest)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return TtsTextCorpus, (self.data_list, self._per_character, self._speakers)


def speakers_of(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the speakers in some files, in order and once each.

    Raises:
        ListError: a file is missing, is not UTF-8, or names no speaker.
    """
    speakers_of_files: list[list[str]] = []
    for path in paths:
        try:
            speakers_of_files.append(without_mark(Path(path).read_text(encoding="utf-8")).split())
        except (OSError, UnicodeDecodeError) as error:
            raise ListError(f"{path}: speakers cannot be read ({error})") from None
        if not speakers_of_files[-1]:
            raise ListError(f"{path}: names no speaker; write one a line")

    return tuple(dict.fromkeys(itertools.chain(*speakers_of_files)))


def _entries(
    path: str,
    manifest: bool,
    seconds_per_character: float,
    bad: list[Problem],
    _unread: Unread,
) -> Iterator[Entry]:
    """Yield the entry of each sentence of a file; those that cannot be used are added to `bad`.

    A sentence that states no duration has one by the number of its characters.
    """
    name = Path(path).name
    for number, (offset, line) in enumerate(lines_of(path), 1):
        if not line.strip():
            continue

        try:
            sentence = parse_tts_text(line, manifest=manifest)
            estimate = SECONDS_OF_TEXT + seconds_per_character * len(sentence.to_speak)
            seconds = sentence.seconds or estimate
            milliseconds = math.ceil(PLANNED_RATE * seconds)
            if milliseconds > MOST_SAMPLES:
                raise ListError(
                    f"speech of {milliseconds / PLANNED_RATE:g} s is too long; split the text"
                )
        except ListError as error:
            bad.append((f"{path}:{number}", str(error)))
            continue

        key = sentence.key or f"{name}:{number}"
        yield Entry(key, milliseconds, PLANNED_RATE, len(sentence.text), 0, 0, offset, len(line))
