"""Reading a conversation: its text turns become labels, its audio turns features, in their
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from wenet_uio.audio.decoders import why_past_the_end
from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.chain.tokens import Filter, Tokenize
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.frames import tokens_of_audio
from wenet_uio.dataset.kinds.conversation.line import ASSISTANT
from wenet_uio.dataset.kinds.kind import Reading
from wenet_uio.dataset.types import (
    AUDIO_TURN,
    AudioTurn,
    ConversationExample,
    ConversationUtterance,
    Example,
    Operator,
    SkipSample,
    TextExample,
    waveform_of,
)


def conversation_example(utterance: ConversationUtterance, reading: Reading) -> ConversationExample:
    """Return the example of a conversation. `labels` are those of the text turns, with AUDIO_TURN
    for each audio turn.

    Raises:
        AudioError, OSError: audio cannot be read.
        SkipSample: audio is shorter than its line states, or an operator leaves the conversation
            out.
    """
    chain, random = reading.audio_chain, reading.random
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
        decoded = _decoded(turn, f"{utterance.key}/{number}", reading.channel)
        count = int(tokens_of_audio(_seconds(decoded), turn.seconds_of_token))
        tokens[role == ASSISTANT] += count
        audio_turns.append(
            _through(operators, replace(decoded, random=random + number, speed=reading.ref.speed))
        )

    _check_tokens(chain, tokens[True], tokens[False])
    return ConversationExample(
        utterance.key,
        utterance.text,
        None,
        TEXT_ONLY,
        random,
        labels=tuple(labels),
        extra=utterance.extra,
        turns=tuple(audio_turns),
    )


def _labels(text: str, utterance: ConversationUtterance, chain: Sequence[Operator]) -> list[int]:
    """Return the labels of a text turn."""
    example = TextExample(utterance.key, text, None, TEXT_ONLY, 0, extra=utterance.extra)
    return [
        unit
        for operator in chain
        if isinstance(operator, Tokenize)
        for unit in operator(example).labels
    ]


def _check_tokens(chain: Sequence[Operator], of_assistant: int, of_others: int) -> None:
    """Apply the filters of a chain to the tokens of a conversation."""
    for operator in chain:
        if isinstance(operator, Filter):
            operator.check_conversation(of_assistant, of_others)


def _through(operators: Sequence[Operator], example: Example) -> Example:
    """Apply operators one after the other."""
    for operator in operators:
        example = operator(example)
    return example


def _seconds(example: Example) -> float:
    return waveform_of(example).numel() / example.sample_rate


def _decoded(turn: AudioTurn, key: str, channel: int | Literal["mix"]) -> Example:
    """Decode the audio of a turn.

    Raises:
        SkipSample: the audio is shorter than when the conversation was indexed.
    """
    waveform, rate = read_audio(turn.audio, turn.start, turn.end, channel)
    if why := why_past_the_end(turn.start, turn.end, len(waveform) / rate):
        raise SkipSample("changed_length", f"{key}: {why}")
    return Example(key, "", torch.from_numpy(waveform), rate, 0)
