"""Texts that an operator of the user speaks: every line is a sample with the length that the plan
counts for it.

NeMo's manifests for hybrid ASR-TTS models, or plain text with one text a line:

{"text": "ten percent", "tts_text": "10 %", "tts_text_normalized": "ten percent", "speaker": "7",
"duration": 2.5}

`text` is learned. `tts_text_normalized` is spoken, or else `tts_text`, or else `text`. All other
fields are kept.

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
from random import Random
from typing import Any, NamedTuple

from wenet_uio.audio.decoders import MOST_SAMPLES
from wenet_uio.config.base import AboveZero, ConfigError
from wenet_uio.config.dataset import OperatorConf
from wenet_uio.config.source import Buckets, Paths, SourceConf, SourceType
from wenet_uio.dataset.corpus.base import Facts, Texts
from wenet_uio.dataset.corpus.index import TEXT_ONLY, Entry, Problem
from wenet_uio.dataset.corpus.raw_corpus import LineCorpus, indexed_lines
from wenet_uio.dataset.corpus.unread_audio import Unread
from wenet_uio.dataset.formats.data_list import KEY, lines_of, reason_to_skip, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import one_word
from wenet_uio.dataset.kinds.kind import Reading, SampleKind
from wenet_uio.dataset.sources.lists import expanded, local_manifest
from wenet_uio.dataset.types import (
    Example,
    ExampleToSpeak,
    Operator,
    SampleRef,
    SkipSample,
    ToSpeak,
    UtteranceToSpeak,
    waveform_of,
)
from wenet_uio.text.characters import without_mark


class ToSpeakConf(SourceConf):
    """Texts that an operator of the user speaks: NeMo's manifests, or plain text."""

    manifest_filepath: Buckets
    speakers_filepath: Paths | None = None
    """Files of speakers, separated by blanks or line ends. Each text gets one of them in each epoch
    as its field `speaker`, unless its line states a `speaker`."""
    seconds_per_character: AboveZero = 0.15
    """Seconds of the longest speech of a character. The plan counts them, and 0.5 s for each text,
    unless a line states its `duration`."""


def _open(conf: ToSpeakConf) -> list[TtsTextCorpus]:
    """Return a corpus for each file."""
    speakers = speakers_of(expanded(conf.speakers_filepath)) if conf.speakers_filepath else ()
    paths = map(local_manifest, expanded(conf.manifest_filepath))
    return [TtsTextCorpus(path, conf.seconds_per_character, speakers) for path in paths]


TO_SPEAK = SourceType(ToSpeakConf, _open)


SPOKEN = ("tts_text_normalized", "tts_text")
"""Fields with the text that is spoken; the first one that a line has."""


class TtsText(NamedTuple):
    """One line."""

    key: str | None
    """None: the line states no key."""
    text: str
    """What is learned."""
    to_speak: str
    seconds: float | None
    """Longest speech, as the line states; None: the line states no duration."""
    extra: dict[str, Any]
    """All fields but the key, `text` and `duration`."""


def is_manifest(first_line: bytes) -> bool:
    """Tell whether a file is a manifest, by its first line that is not blank; else it is plain
    text.
    """
    return first_line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{")


def parse_tts_text(line: bytes, *, manifest: bool) -> TtsText:
    """Parse a line of a manifest, or of plain text.

    Raises:
        ListError: the line is not UTF-8 or not JSON, a text is missing or blank, or the duration is
            impossible.
    """
    values = values_of(line) if manifest else {"text": _decode_line(line)}
    if reason := reason_to_skip(values):
        raise ListError(reason)

    key, duration = (
        next((values.pop(name) for name in KEY if name in values), None),
        values.pop("duration", None),
    )
    text = values.pop("text", None)
    spoken = next((name for name in SPOKEN if values.get(name) is not None), "text")
    to_speak = values.get(spoken, text)
    text, to_speak = _check_text(text, "text"), _check_text(to_speak, spoken)
    if not isinstance(values.get("speaker"), (str, int, type(None))):
        raise ListError(f"speaker must be a string or a number, found {values['speaker']!r}")

    if key is not None:
        key = one_word(str(key))
    return TtsText(key, text, to_speak, _seconds(duration), values)


def _check_text(text: Any, name: str) -> str:
    checked = without_mark(text).strip() if isinstance(text, str) else ""
    if not checked:
        raise ListError(f"{name} must be a text, found {text!r}")
    return checked


def _decode_line(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ListError(
            f"not UTF-8 ({error.reason} at byte {error.start}); convert the file with iconv"
        ) from None


def _seconds(duration: Any) -> float | None:
    """Return a duration in seconds; None if it is not stated."""
    if duration is None:
        return None

    try:
        seconds = float(duration)
    except (TypeError, ValueError):
        seconds = math.nan

    if not 0 < seconds < math.inf:
        raise ListError(f"duration must be seconds, found {duration!r}")

    return seconds


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
        index = f"{path}.spoken-{seconds_per_character:g}.idx"
        (file,), stored = indexed_lines([path], index, entries)
        super().__init__(file, stored, Facts(frozenset({"to_speak"})))

        self.require_samples("holds no text to speak")

        if speakers:
            self.digest += (
                " " + hashlib.blake2b(repr(self._speakers).encode(), digest_size=8).hexdigest()
            )

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
        return parse_tts_text(self.line_of(ref), manifest=self._is_manifest)

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


def require_speaker(data_list: str, operators: Sequence[OperatorConf], *, training: bool) -> None:
    """Raise ConfigError if no operator can speak the texts of a data list."""
    if not any(
        operator.after == "decode" and (training or operator.evaluation) for operator in operators
    ):
        also = "" if training else " and evaluation: true"
        raise ConfigError(
            f"{data_list}: sources of type tts_text need an operator that speaks their "
            f"texts: name it in dataset_conf.operators with after: decode{also}"
        )


class TextToSpeak(SampleKind):
    """Texts that an operator of the user speaks."""

    def example(self, utterance: UtteranceToSpeak, reading: Reading) -> ExampleToSpeak:
        """Return the example that operators after `decode` get: a text to speak, and no waveform."""
        random = reading.random
        extra = dict(utterance.extra)
        if extra.get("speaker") is None and utterance.speakers:
            extra["speaker"] = Random(f"speaker {random}").choice(utterance.speakers)

        speaker = extra.get("speaker")
        speaker_name = None if speaker is None else str(speaker)
        speech = ToSpeak(utterance.to_speak, speaker_name, reading.indexed_seconds)

        return ExampleToSpeak(
            key=utterance.key,
            text=utterance.text,
            waveform=None,
            sample_rate=TEXT_ONLY,  # that of the speech comes with it
            random=random,
            speed=reading.ref.speed,
            extra=extra,
            speech=speech,
        )

    def begin_chain(self, example: ExampleToSpeak) -> tuple[Example, Sequence[Operator]]:
        """Return the speech, and the operators after the one that spoke."""
        return spoken(example, self.chains.audio)


def spoken(
    to_speak: ExampleToSpeak, operators: Sequence[Operator]
) -> tuple[Example, Sequence[Operator]]:
    """Run operators until one has spoken the text; return the speech, and the other operators.

    Raises:
        SkipSample: the speech is longer than planned, or an operator leaves the sample out.
        ValueError: no operator speaks.
    """
    example: Example = to_speak
    passed = 0
    while example.waveform is None and passed < len(operators):
        example = operators[passed](example)
        passed += 1

    seconds = waveform_of(example).numel() / example.sample_rate
    if seconds > to_speak.speech.seconds:
        raise SkipSample(
            "longer_than_planned",
            f"{seconds:.2f} s of speech, {to_speak.speech.seconds:.2f} s planned; raise "
            "seconds_per_character of the source, or give the line a duration",
        )

    return example, operators[passed:]
