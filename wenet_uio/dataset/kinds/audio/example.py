"""Reading recorded audio, or features that are stored in its place."""

from __future__ import annotations

import torch

from wenet_uio.audio.decoders import LENGTH_TOLERANCE
from wenet_uio.audio.read import read_signal
from wenet_uio.dataset.kinds.features.checks import wrong_width
from wenet_uio.dataset.kinds.kind import Reading
from wenet_uio.dataset.types import AudioUtterance, Example, FeatureExample, SkipSample


def audio_example(utterance: AudioUtterance, reading: Reading) -> Example:
    """Decode the audio of an utterance, or read its stored features.

    Raises:
        AudioError, OSError: it cannot be read.
        SkipSample: the length is not the indexed one, or the features have another width.
    """
    channel = utterance.extra.get("channel", reading.channel)
    signal, rate = read_signal(
        utterance.audio, utterance.start, utterance.end, channel, keep_int16=reading.keep_int16
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

    if signal.shape[1] != reading.feature_dim:
        raise SkipSample("feature_dim", wrong_width(signal.shape[1], reading.feature_dim))

    return FeatureExample(
        utterance.key,
        utterance.text,
        None,
        rate,
        reading.random,
        extra=utterance.extra,
        feats=tensor,
    )
