"""Recorded audio with a text, and features that are stored in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch

from wenet_uio.audio.decoders import LENGTH_TOLERANCE, AudioError
from wenet_uio.audio.read import audio_info, read_signal
from wenet_uio.base.messages import warn_once
from wenet_uio.config.dataset import ChainStep, DatasetConf
from wenet_uio.dataset.chain.waveform_augment import AUGMENTATION_STEPS
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.kinds.kind import Reading, SampleKind
from wenet_uio.dataset.types import (
    AudioUtterance,
    Example,
    FeatureExample,
    Operator,
    SampleRef,
    SkipSample,
)

STEPS: tuple[ChainStep, ...] = get_args(ChainStep)
"""Steps of the chain, in their order."""
WAVEFORM_STEPS: tuple[ChainStep, ...] = tuple(
    step for step in STEPS[: STEPS.index("features")] if step not in ("tokenize", "filter")
)
"""Steps of the chain after which a sample has a waveform; tokenize and filter leave it as it is."""


class RecordedAudio(SampleKind):
    """Recorded audio, or features that are stored in its place; a list may hold both."""

    def example(self, utterance: AudioUtterance, reading: Reading) -> Example:
        """Decode the audio of an utterance, or read its stored features.

        Raises:
            AudioError, OSError: it cannot be read.
            SkipSample: the length is not the indexed one, or the features have another width.
        """
        channel = utterance.extra.get("channel", self.channel)
        signal, rate = read_signal(
            utterance.audio, utterance.start, utterance.end, channel, keep_int16=self.keep_int16
        )

        indexed, seconds = reading.indexed_seconds, len(signal) / rate
        if abs(indexed - seconds) > LENGTH_TOLERANCE:
            raise SkipSample("changed_length", f"{indexed:.2f} s when indexed, {seconds:.2f} s now")

        tensor = torch.from_numpy(signal)
        if signal.ndim == 1:
            return Example(
                utterance.key,
                utterance.text,
                tensor,
                rate,
                reading.random,
                speed=reading.ref.speed,
                extra=utterance.extra,
            )

        if signal.shape[1] != self.feature_dim:
            raise SkipSample("feature_dim", wrong_width(signal.shape[1], self.feature_dim))

        return FeatureExample(
            utterance.key,
            utterance.text,
            None,
            rate,
            reading.random,
            extra=utterance.extra,
            feats=tensor,
        )

    def begin_chain(self, example: Example) -> tuple[Example, Sequence[Operator]]:
        """Return the example, and the operators on waveforms or on features."""
        is_stored = isinstance(example, FeatureExample)
        return example, self.chains.features if is_stored else self.chains.audio


def wrong_width(width: int, expected: int) -> str:
    """Return what to say of features that have not the width of the config."""
    return f"{width} features per frame, dataset_conf has {expected} (fbank_conf.num_mel_bins or the like)"


def check_features(corpus: Corpus, conf: DatasetConf, *, training: bool) -> None:
    """Check the first stored features of a corpus, and say which steps of the config do not apply
    to them.

    Raises:
        ListError: the features have not the width that `conf` states.
    """
    for list_corpus in corpus.corpora:
        if "features" in list_corpus.kinds:
            _check_width(list_corpus, conf)

    if names := ", ".join(_left_out(conf, training=training)):
        warn_once(
            f"{corpus.data_list}: stored features are read as they are; what needs audio is left "
            f"out: {names}"
        )


def _left_out(conf: DatasetConf, *, training: bool) -> list[str]:
    """Return steps of the config that change waveforms; steps of training only count in training."""
    operators = [operator for operator in conf.operators if training or operator.evaluation]
    steps = ["speed_perturb"] if training and conf.speed_perturb else []
    if training:
        steps += [f"{step}_conf" for step in AUGMENTATION_STEPS if getattr(conf, f"{step}_conf")]
    return steps + [operator.use for operator in operators if operator.after in WAVEFORM_STEPS]


def _check_width(corpus: Corpus, conf: DatasetConf) -> None:
    """Raise ListError if the first features of a corpus have not the width that `conf` states."""
    try:
        first = corpus.read(SampleRef(0, 0))
        info = audio_info(first.audio) if isinstance(first, AudioUtterance) else None
    except (AudioError, ListError, OSError):
        return  # reading counts it as bad

    if info is not None and info.is_features and info.channels != conf.feature_dim:
        problem = wrong_width(info.channels, conf.feature_dim)
        raise ListError(f"{corpus.data_list}: {first.key}: {problem}")
