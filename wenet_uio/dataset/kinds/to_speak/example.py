"""Texts that an operator of the user speaks: the example that the operator gets, and the check of
what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from wenet_uio.config.base import ConfigError
from wenet_uio.config.dataset import OperatorConf
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.index import TEXT_ONLY
from wenet_uio.dataset.types import Example, Operator, SkipSample, ToSpeak, Utterance, waveform_of


def require_speaker(corpus: Corpus, operators: Sequence[OperatorConf], *, training: bool) -> None:
    """Raise ConfigError if the corpus has texts to speak, and no operator can speak them."""
    if corpus.has_tts_text and not any(
        operator.after == "decode" and (training or operator.evaluation) for operator in operators
    ):
        also = "" if training else " and evaluation: true"
        raise ConfigError(
            f"{corpus.data_list}: sources of type tts_text need an operator that speaks their "
            "texts: name it in "
            f"dataset_conf.operators with after: decode{also}"
        )


def example_to_speak(utterance: Utterance, random: int, speed: float, seconds: float) -> Example:
    """Return the example that operators after `decode` get: a text to speak, and no waveform.

    Args:
        utterance: has `to_speak`.
        random: seed of all random draws, also that of the speaker.
        speed: at which the speech will be played.
        seconds: length that the plan counts.
    """
    assert utterance.to_speak is not None
    extra = dict(utterance.extra)
    if extra.get("speaker") is None and utterance.speakers:
        extra["speaker"] = Random(f"speaker {random}").choice(utterance.speakers)

    speaker = extra.get("speaker")
    to_speak = ToSpeak(utterance.to_speak, None if speaker is None else str(speaker), seconds)
    return Example(
        utterance.key,
        utterance.text,
        None,
        TEXT_ONLY,
        random,
        speed=speed,
        extra=extra,
        to_speak=to_speak,
    )


def spoken(example: Example, operators: Iterator[Operator]) -> Example:
    """Run operators until one has spoken the text; the rest of the operators remains in the
    iterator.

    Raises:
        SkipSample: the speech is longer than planned, or an operator leaves the sample out.
        ValueError: no operator speaks.
    """
    to_speak = example.to_speak
    assert to_speak is not None
    while example.waveform is None and (operator := next(operators, None)) is not None:
        example = operator(example)

    seconds = waveform_of(example).numel() / example.sample_rate
    if seconds > to_speak.seconds:
        raise SkipSample(
            "longer_than_planned",
            f"{seconds:.2f} s of speech, {to_speak.seconds:.2f} s planned; raise "
            "seconds_per_character of the source, "
            "or give the line a duration",
        )

    return example
