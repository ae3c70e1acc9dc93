"""Reading a conversation: its text turns become labels, its audio turns features, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from wenet_uio.audio.read import read_audio
from wenet_uio.dataset.chain.tokens import Filter, Tokenize
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.types import AUDIO_TURN, AudioTurn, Example, Operator, Utterance


def read_conversation(
    utterance: Utterance, random: int, speed: float, chain: Sequence[Operator], channel: int | Literal["mix"]
) -> Example:
    """The example of a conversation. `labels` are those of the text turns, with AUDIO_TURN for each audio turn.

    Args:
        utterance: has turns.
        random: seed of all random draws.
        speed: at which its audio is played.
        chain: operators for samples with audio.
        channel: of the audio.

    Raises:
        AudioError, OSError: audio cannot be read. SkipSample: an operator leaves the conversation out.
    """
    tokenizers = [operator for operator in chain if isinstance(operator, Tokenize)]
    operators = [operator for operator in chain if not isinstance(operator, (Tokenize, Filter))]
    labels: list[int] = []
    heard: list[Example] = []
    assert utterance.turns is not None
    for number, turn in enumerate(utterance.turns):
        if isinstance(turn, str):
            for tokenize in tokenizers:
                labels += tokenize(Example(utterance.key, turn, None, TEXT_ONLY, 0, extra=utterance.extra)).labels
            continue
        labels.append(AUDIO_TURN)
        decoded = _decoded(turn, f"{utterance.key}/{number}", channel)
        heard.append(_through(operators, replace(decoded, random=random + number, speed=speed)))
    return Example(
        utterance.key,
        utterance.text,
        None,
        TEXT_ONLY,
        random,
        labels=tuple(labels),
        extra=utterance.extra,
        turns=tuple(heard),
    )


def _through(operators: Sequence[Operator], example: Example) -> Example:
    for operator in operators:
        example = operator(example)
    return example


def _decoded(turn: AudioTurn, key: str, channel: int | Literal["mix"]) -> Example:
    waveform, rate = read_audio(turn.audio, turn.start, turn.end, channel)
    return Example(key, "", torch.from_numpy(waveform), rate, 0)
