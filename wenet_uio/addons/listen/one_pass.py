"""One pass of the encoder over a whole recording, in memory that does not grow with its length."""

from __future__ import annotations

import math

import torch

from wenet_uio.addons.listen.speech import Segment, read_blocks
from wenet_uio.addons.listen.stream_audio import StreamFeatures, StreamResampler
from wenet_uio.audio.decoders import Channel
from wenet_uio.audio.read import Source
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.models.interfaces import DecodingModel
from wenet_uio.models.recording import RecordingEncoder, one_pass_obstacle
from wenet_uio.search.recogniser import FrameClock, features_obstacle
from wenet_uio.search.types import DecodeOptions


def check_one_pass(model: DecodingModel, conf: DatasetConf, options: DecodeOptions) -> None:
    """Check that a model can encode a recording in one pass.

    Raises:
        ValueError: it cannot, or the options ask for chunks.
    """
    obstacle = one_pass_obstacle(model.encoder) or features_obstacle(conf)
    if obstacle:
        raise ValueError(f"one_pass: {obstacle}")

    if options.decoding_chunk_size > 0 or options.simulate_streaming:
        raise ValueError(
            "one_pass: the encoder sees the whole recording, so decoding_chunk_size has no meaning"
        )


class RecordingFrames:
    """Encoder frames of a recording, which is read and encoded only as far as frames are needed."""

    def __init__(
        self,
        source: Source,
        channel: Channel,
        rate: int,
        features: StreamFeatures,
        model: DecodingModel,
        clock: FrameClock,
    ) -> None:
        """Begin a recording.

        Args:
            rate: sample rate of the model, in Hz.
        """
        self._blocks = read_blocks(source, channel)
        self._rate, self._features, self._clock = rate, features, clock
        self._encoder = RecordingEncoder(model.encoder)
        self._device = model.device
        self._resampler: StreamResampler | None = None
        self._kept = torch.zeros(1, 0, model.encoder.traits.output_size, device=model.device)
        """Frames that later segments may need, (1, T', D)."""
        self._first = 0
        """Number of the first kept frame."""
        self._ended = False

    def between(self, segment: Segment) -> tuple[int, torch.Tensor]:
        """Return the frames of a segment. Calls must come in the order of the segments' starts.

        A frame belongs to the segment if its middle does.

        Returns:
            The number of the first frame, and the frames (T', D).

        Raises:
            AudioError: the recording cannot be read.
        """
        first, end = (
            max(0, math.ceil((seconds - self._clock.middle(0)) / self._clock.step - 1e-6))
            for seconds in segment
        )
        while not self._ended and self._first + self._kept.size(1) < end:
            self._read_block(keep=first)

        first = max(first, self._first)
        return first, self._kept[0, first - self._first : max(first, end) - self._first]

    def _read_block(self, keep: int) -> None:
        """Encode the next block of audio, and drop the frames before `keep`."""
        waveform, rate = next(self._blocks, (None, self._rate))
        self._ended = waveform is None
        if self._resampler is None:
            self._resampler = StreamResampler(rate, self._rate)

        arrived = torch.zeros(0) if waveform is None else torch.from_numpy(waveform).float()
        feats = self._features.accept(self._resampler.accept(arrived, last=self._ended))

        parts = [self._kept]
        if feats is not None:
            parts.append(self._encoder.accept(feats.to(self._device), last=False))
        if self._ended:
            no_feats = self._kept.new_zeros(1, 0, self._features.dim)
            parts.append(self._encoder.accept(no_feats, last=True))

        frames = torch.cat([part.to(self._kept.dtype) for part in parts], dim=1)

        dropped = min(max(0, keep - self._first), frames.size(1))
        self._kept = frames[:, dropped:].clone()
        self._first += dropped
