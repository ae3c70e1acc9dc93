"""A file of conversations as a corpus: every line is a sample whose length is counted in tokens.

The length of a conversation is that of its texts (characters, or tokens if they are counted) and of
its audio, which counts one token for each `token_equivalent_duration` seconds, rounded up for each
turn. Its sample rate is TEXT_ONLY: the plan treats it as text. The index is beside the file, with
the duration in its name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wenet_uio.audio.decoders import AudioError
from wenet_uio.dataset.corpus.base import Kind, Texts
from wenet_uio.dataset.corpus.index import TEXT_ONLY, Entry, Problem
from wenet_uio.dataset.corpus.line_index import indexed_lines
from wenet_uio.dataset.corpus.raw_corpus import LineCorpus
from wenet_uio.dataset.corpus.raw_index import info_of
from wenet_uio.dataset.corpus.remote_audio import stored_info
from wenet_uio.dataset.corpus.unread_audio import Unread, measured
from wenet_uio.dataset.formats.data_list import lines_of, locate
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.frames import tokens_of_audio
from wenet_uio.dataset.kinds.conversation.line import (
    ASSISTANT,
    Conversation,
    Turn,
    parse_conversation,
)
from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.types import AudioTurn, ConversationUtterance, SampleRef

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        super().__init__(*indexed_lines(path, f"{path}.{token_equivalent_duration:g}.idx", entries))
        if not self.num_samples:
            reasons = "; ".join(f"{key}: {reason}" for key, reason in self.bad[:3])
            raise ListError(f"{path}: holds no conversation" + (f" ({reasons})" if reasons else ""))

    @property
    def kinds(self) -> frozenset[Kind]:
        """Conversations."""
        return frozenset({"conversation"})

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
        rows = self.rows(ref.shard)
        line = self._lines.read(int(rows.text_offset[ref.row]), int(rows.text_size[ref.row]))
        return parse_conversation(line)

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
            length = sum(
                len(turn.text)
                if turn.text is not None
                else _tokens(turn, path, seconds_of_token, unread)
                for turn in conversation.turns
            )
        except (ListError, AudioError) as error:
            bad.append((f"{path}:{number}", str(error)))
            continue

        yield Entry(conversation.key, 0, TEXT_ONLY, length, 0, 0, offset, len(line))
