"""Recognise speech while it arrives: samples in, the text so far out.

`start_live` starts a stream that advances together with others; `Stream` is the simple form for one
stream alone.
"""

from __future__ import annotations

import numpy as np
import torch

from wenet_uio.addons.listen.chunk_stream import ChunkStream
from wenet_uio.addons.listen.live import Failed, Final, LiveOptions, LiveStream, advance
from wenet_uio.addons.listen.results import Transcript, TranscriptSegment
from wenet_uio.addons.listen.stream_audio import NEVER_MORE
from wenet_uio.addons.listen.stream_features import features_obstacle
from wenet_uio.addons.listen.transcription import Cutting, Transcriber
from wenet_uio.addons.listen.window_stream import WindowStream
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import Recogniser


class Stream:
    """Speech that is recognised while it arrives."""

    def __init__(self, live: LiveStream) -> None:
        self._live = live
        self._partial = ""
        self._seconds = 0.0
        self._segments: list[TranscriptSegment] = []

    def accept(self, samples: np.ndarray | torch.Tensor) -> None:
        """Add samples (N,) of one channel: int16, or floats from -1 to 1.

        Raises:
            ValueError: the samples have another shape or type, or the stream has ended.
        """
        self._live.push(samples)
        self._advance()

    @property
    def partial(self) -> str:
        """The text of the utterance so far; later samples may change it."""
        return self._partial

    @property
    def segments(self) -> tuple[TranscriptSegment, ...]:
        """The utterances that have ended, without those that have no words."""
        return tuple(self._segments)

    def finish(self) -> Transcript:
        """End the stream and return all its utterances.

        Raises:
            ValueError: the stream has ended before.
        """
        if self._live.finished:
            raise ValueError(NEVER_MORE)
        self._live.end()
        self._advance()
        return Transcript(self.segments, self._seconds)

    def _advance(self) -> None:
        """Recognise all audio that is complete, and take the events of the stream."""
        while self._live.ready:
            advance([self._live])

        for event in self._live.take():
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Final):
                self._partial = ""
                self._seconds = event.segment.end
                if event.segment.tokens:
                    self._segments.append(event.segment)
            else:
                self._partial = event.texts[0]


def obstacle_of(model: DecodingModel, conf: DatasetConf) -> str:
    """Return the reason why a model cannot encode chunk by chunk; empty if it can."""
    traits = model.encoder.traits
    if traits.never_streams:
        return traits.obstacle
    if not traits.trained_in_chunks:
        return "the model was trained with full context only; train with use_dynamic_chunk"
    if traits.obstacle:
        return traits.obstacle
    if model.ctc_weight == 0:
        return "the model was trained with ctc_weight 0, and partial texts come from CTC"

    return features_obstacle(conf)


def start_live(
    transcriber: Transcriber,
    recogniser: Recogniser,
    search: Search,
    options: LiveOptions,
    cutting: Cutting,
) -> LiveStream:
    """Start a stream chunk by chunk, or of windows if the model has an obstacle.

    Args:
        transcriber: of the second pass, and of windows.
        search: of the stream; its options have the size of the chunks and the number of left
            chunks.
        cutting: of the second pass; its windows are those of a stream of windows.

    Raises:
        ValueError: the sample rate or the size of the chunks is not above 0.
    """
    if obstacle_of(recogniser.model, recogniser.config.dataset_conf):
        return WindowStream(transcriber, recogniser, search, options, cutting)
    return ChunkStream(transcriber, recogniser, search, options, cutting)
