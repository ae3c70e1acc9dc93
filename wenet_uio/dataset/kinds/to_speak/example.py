"""Texts that an operator of the user speaks: the example that the operator gets, and the check of
what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from wenet_uio.config.base import ConfigError
from wenet_uio.config.dataset import OperatorConf
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.kinds.kind import Reading
from wenet_uio.dataset.types import (
    Example,
    ExampleToSpeak,
    Operator,
    SkipSample,
    ToSpeak,
    UtteranceToSpeak,
    waveform_of,
)


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


def example_to_speak(utterance: UtteranceToSpeak, reading: Reading) -> ExampleToSpeak:
    """Return the example that operators after `decode` get: a text to speak, and no waveform."""
    random = reading.random
    extra = dict(utterance.extra)
    if extra.get("speaker") is None and utterance.speakers:
        extra["speaker"] = Random(f"speaker {random}").choice(utterance.speakers)

    speaker = extra.get("speaker")
    speech = ToSpeak(
        utterance.to_speak, None if speaker is None else str(speaker), reading.indexed_seconds
    )

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
