"""Conversations: turns of text and audio. Every line of a file is a sample whose length is counted in
tokens.

{"id": "c0", "conversations": [{"from": "user", "value": "speak to me", "type": "text"},
{"from": "assistant", "value": "a.wav", "duration": 17.1, "type": "audio"}]}

The length of a conversation is that of its texts (characters, or tokens if they are counted) and of
its audio, which counts one token for each `token_equivalent_duration` seconds, rounded up for each
turn. Its sample rate is TEXT_ONLY: the plan treats it as text. The index is beside the file, with
the duration in its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import field_validator

from wenet_uio.audio.decoders import AudioError, why_past_the_end
from wenet_uio.audio.read import read_audio
from wenet_uio.config.base import AboveZero
from wenet_uio.config.source import Buckets, SourceConf, SourceType
from wenet_uio.dataset.chain.tokens import Filter, Tokenize
from wenet_uio.dataset.corpus.base import Facts, Texts
from wenet_uio.dataset.corpus.index import TEXT_ONLY, Entry, Problem
from wenet_uio.dataset.corpus.raw_corpus import LineCorpus, indexed_lines
from wenet_uio.dataset.corpus.raw_index import info_of
from wenet_uio.dataset.corpus.remote_audio import stored_info
from wenet_uio.dataset.corpus.unread_audio import Unread, measured
from wenet_uio.dataset.formats.data_list import lines_of, locate, values_of
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.keys import one_word
from wenet_uio.dataset.kinds.kind import Reading, SampleKind
from wenet_uio.dataset.lengths import seconds_of, tokens_of_audio
from wenet_uio.dataset.sources.lists import expanded
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.types import (
    AUDIO_TURN,
    AudioTurn,
    ConversationExample,
    ConversationUtterance,
    Example,
    Operator,
    SampleRef,
    SkipSample,
    TextExample,
)
from wenet_uio.text.characters import without_mark

SECONDS_OF_TOKEN = 0.08
"""Default of token_equivalent_duration; a source without the key takes that of its group."""


class ConversationConf(SourceConf):
    """Conversations, as NeMo has them."""

    manifest_filepath: Buckets
    token_equivalent_duration: AboveZero | None = None
    """Seconds of audio that count as one token; default 0.08."""
    audio_locator_tag: str = "[audio]"
    """Stands for an audio turn in the text of a conversation."""

    @field_validator("audio_locator_tag", mode="before")
    @classmethod
    def _restore_brackets(cls, tag: Any) -> Any:
        """Return the tag; [audio] without quotes is a list in yaml."""
        return f"[{', '.join(map(str, tag))}]" if isinstance(tag, list) else tag


def _open(conf: ConversationConf) -> list[ConversationCorpus]:
    seconds = conf.token_equivalent_duration or SECONDS_OF_TOKEN
    return [
        ConversationCorpus(path, seconds, conf.audio_locator_tag)
        for path in expanded(conf.manifest_filepath)
    ]


CONVERSATION = SourceType(ConversationConf, _open, is_text=True)


ASSISTANT = "assistant"
"""Role whose turns are the output of a model; the turns of all others are its input, as in NeMo."""


class Turn(NamedTuple):
    """One turn of a conversation."""

    role: str
    """`from`: who speaks."""
    text: str | None
    """None: the turn is audio."""
    audio: str = ""
    """Path or URI, as in the file."""
    start: float = 0.0
    """Seconds."""
    seconds: float | None = None
    """Length of the audio; None if the line does not state it."""


@dataclass(frozen=True)
class Conversation:
    """One line."""

    key: str
    turns: tuple[Turn, ...]
    extra: dict[str, Any]
    """All other fields of the line."""

    def text(self, audio_locator_tag: str) -> str:
        """Return the texts of all turns, with a tag in the place of each audio."""
        return " ".join(
            audio_locator_tag if turn.text is None else turn.text for turn in self.turns
        )


def parse_conversation(line: bytes | str) -> Conversation:
    """Parse one line.

    Raises:
        ListError: not JSON, or a turn lacks a field or has one of another type; callers add file
            and line number.
    """
    values = values_of(line)
    turns = values.pop("conversations", None)
    if not isinstance(turns, list) or not turns:
        raise ListError(f"needs a list of turns under conversations, found {turns!r}")

    key = values.pop("id", None)
    if not isinstance(key, (str, int)):
        raise ListError(f"needs id, a string, found {key!r}")

    return Conversation(
        one_word(str(key)),
        tuple(_turn(number, turn) for number, turn in enumerate(turns, 1)),
        values,
    )


def _turn(number: int, turn: Any) -> Turn:
    """Parse the turn `number` of a conversation, a text or audio."""
    if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
        raise ListError(f"turn {number}: needs a string under value, found {turn!r}")

    role, turn_type = str(turn.get("from", "")), turn.get("type", "text")
    if turn_type == "text":
        return Turn(role, without_mark(turn["value"]).strip())
    if turn_type != "audio":
        raise ListError(f"turn {number}: type is text or audio, found {turn_type!r}")

    return Turn(role, None, turn["value"], *_times(number, turn))


def _times(number: int, turn: dict[str, Any]) -> tuple[float, float | None]:
    """Return start and length of an audio turn in seconds; None if the length is not stated."""
    try:
        start = float(turn.get("offset") or 0.0)
        seconds = None if turn.get("duration") is None else float(turn["duration"])
    except (TypeError, ValueError):
        raise ListError(
            f"turn {number}: offset and duration must be seconds, found {turn!r}"
        ) from None

    if not (0 <= start < math.inf and (seconds is None or 0 < seconds < math.inf)):
        raise ListError(
            f"turn {number}: offset and duration must be seconds, found {start} and {seconds}"
        )

    return start, seconds


class ConversationCorpus(LineCorpus):
    """The conversations of a file."""

    def __init__(self, path: str, token_equivalent_duration: float, audio_locator_tag: str) -> None:
        """Open a file of conversations, and index it first if needed.

        Args:
            path: JSON lines.
            token_equivalent_duration: seconds of audio that count as one token.
            audio_locator_tag: stands for audio in `Utterance.text`.

        Raises:
            ListError: the file is missing, or holds no conversation.
        """
        if not Path(path).is_file():
            raise ListError(f"{path}: no such file of conversations")

        self._seconds_of_token, self._tag = token_equivalent_duration, audio_locator_tag
        entries = partial(_entries, path, token_equivalent_duration)
        index = f"{path}.{token_equivalent_duration:g}.idx"
        (file,), stored = indexed_lines([path], index, entries)
        super().__init__(file, stored, Facts(frozenset({"conversation"})))
        self.require_samples("holds no conversation")

    def read(self, ref: SampleRef) -> ConversationUtterance:
        """Return the turns of a conversation; audio is the path of a local file, or the bytes of a
        remote one.
        """
        conversation = self._conversation(ref)
        turns = tuple(self._turn(turn) for turn in conversation.turns)
        extra = {**conversation.extra, "roles": [turn.role for turn in conversation.turns]}
        return ConversationUtterance(
            conversation.key, conversation.text(self._tag), turns, extra=extra
        )

    def texts(self, ref: SampleRef) -> Texts:
        """Return the texts of the turns."""
        conversation = self._conversation(ref)
        turns = [turn for turn in conversation.turns if turn.text is not None]
        return Texts(
            tuple(str(turn.text) for turn in turns),
            conversation.extra,
            is_output=tuple(turn.role == ASSISTANT for turn in turns),
        )

    def audio_tokens(self, ref: SampleRef, *, input_only: bool = False) -> int:
        """Return tokens that the audio of a conversation counts."""
        turns = self._conversation(ref).turns
        return sum(
            _tokens(turn, self.data_list, self._seconds_of_token, {})
            for turn in turns
            if turn.text is None and not (input_only and turn.role == ASSISTANT)
        )

    def _conversation(self, ref: SampleRef) -> Conversation:
        return parse_conversation(self.line_of(ref))

    def _turn(self, turn: Turn) -> str | AudioTurn:
        """Return the text of a turn, or its audio, which is read now if it is in a store."""
        if turn.text is not None:
            return turn.text

        path = locate(turn.audio, self.data_list)
        end = None if turn.seconds is None else turn.start + turn.seconds
        audio = path if objects.is_plain(path) else objects.read_bytes(path)
        return AudioTurn(audio, turn.start, end, self._seconds_of_token)

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ConversationCorpus, (self.data_list, self._seconds_of_token, self._tag)


def _tokens(turn: Turn, path: str, seconds_of_token: float, unread: Unread) -> int:
    """Return tokens that one audio turn counts; the header is read if the line states no duration."""
    seconds = turn.seconds
    if seconds is None:
        seconds = measured(turn.audio, path, partial(_seconds_of_audio, turn, path), unread)

    return int(tokens_of_audio(seconds, seconds_of_token))


def _seconds_of_audio(turn: Turn, path: str) -> float:
    info = info_of(locate(turn.audio, path), stored_info)
    return info.samples_between(turn.start, None) / info.sample_rate


def _entries(
    path: str, seconds_of_token: float, bad: list[Problem], unread: Unread
) -> Iterator[Entry]:
    """Yield the entry of each conversation of a file; those that cannot be used are added to `bad`.

    The length of a conversation is its characters and the tokens of its audio.

    Raises:
        OSError: the system does not give a local audio file.
    """
    for number, (offset, line) in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            conversation = parse_conversation(line)
            length = 0
            for turn in conversation.turns:
                if turn.text is not None:
                    length += len(turn.text)
                else:
                    length += _tokens(turn, path, seconds_of_token, unread)
        except (ListError, AudioError) as error:
            bad.append((f"{path}:{number}", str(error)))
            continue

        yield Entry(conversation.key, 0, TEXT_ONLY, length, 0, 0, offset, len(line))


class Conversations(SampleKind):
    """Conversations of text and audio."""

    def example(self, utterance: ConversationUtterance, reading: Reading) -> ConversationExample:
        """Return the example of a conversation. `labels` are those of the text turns, with
        AUDIO_TURN for each audio turn.

        Raises:
            AudioError, OSError: audio cannot be read.
            SkipSample: audio is shorter than its line states, or an operator leaves the
                conversation out.
        """
        chain, random = self.chains.audio, reading.random
        operators = [operator for operator in chain if not isinstance(operator, (Tokenize, Filter))]
        labels: list[int] = []
        audio_turns: list[Example] = []
        tokens = {True: 0, False: 0}  # of the assistant, and of others

        for number, (turn, role) in enumerate(
            zip(utterance.turns, utterance.extra["roles"], strict=True)
        ):
            if isinstance(turn, str):
                turn_labels = _labels(turn, utterance, chain)
                labels += turn_labels
                tokens[role == ASSISTANT] += len(turn_labels)
                continue

            labels.append(AUDIO_TURN)
            decoded = _decode_turn(turn, f"{utterance.key}/{number}", self.channel)
            count = int(tokens_of_audio(seconds_of(decoded), turn.seconds_of_token))
            tokens[role == ASSISTANT] += count

            example = replace(decoded, random=random + number, speed=reading.ref.speed)
            for operator in operators:
                example = operator(example)
            audio_turns.append(example)

        for operator in chain:
            if isinstance(operator, Filter):
                operator.check_conversation(tokens[True], tokens[False])

        return ConversationExample(
            utterance.key,
            utterance.text,
            None,
            TEXT_ONLY,
            random,
            labels=tuple(labels),
            extra=utterance.extra,
            unreadable=tuple(noise for turn in audio_turns for noise in turn.unreadable),
            turns=tuple(audio_turns),
        )

    def begin_chain(
        self, example: ConversationExample
    ) -> tuple[ConversationExample, Sequence[Operator]]:
        """Return the example: its turns have gone through the chain."""
        return example, ()


def _labels(text: str, utterance: ConversationUtterance, chain: Sequence[Operator]) -> list[int]:
    """Return the labels of a text turn."""
    example = TextExample(utterance.key, text, None, TEXT_ONLY, 0, extra=utterance.extra)
    return [
        unit
        for operator in chain
        if isinstance(operator, Tokenize)
        for unit in operator(example).labels
    ]


def _decode_turn(turn: AudioTurn, key: str, channel: int | Literal["mix"]) -> Example:
    """Decode the audio of a turn.

    Raises:
        SkipSample: the audio is shorter than when the conversation was indexed.
    """
    import torch  # planning runs without torch

    waveform, rate = read_audio(turn.audio, turn.start, turn.end, channel)
    if why := why_past_the_end(turn.start, turn.end, len(waveform) / rate):
        raise SkipSample("changed_length", f"{key}: {why}")
    return Example(key, "", torch.from_numpy(waveform), rate, 0)
