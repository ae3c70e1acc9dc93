"""Decoders: audio that has been opened, cut and brought to one channel, block by block."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple, Protocol

import numpy as np
import soundfile

INT16_SCALE = 32768.0
"""Kaldi's features take samples on the scale of int16; libsndfile gives -1 to 1."""
MOST_SAMPLES = 2**32 - 1
"""Of one channel: what an index has room for; a day at 48 kHz."""
LOUDEST = 1000 * INT16_SCALE
"""Floating point audio beyond this, or not a number, is damaged."""
SAMPLES_A_BYTE = 8192
"""More than any codec makes of silence."""
BLOCK = 1 << 22
"""Samples of all channels that are decoded at a time."""

Channel = int | Literal["mix"]
"""Number of a channel, from 0, or the mean of all."""


class AudioError(ValueError):
    """Audio that cannot be read; the message says why."""


@dataclass(frozen=True)
class AudioInfo:
    """What a header says."""

    num_samples: int
    """Of one channel."""
    sample_rate: int
    """Hz."""
    channels: int

    def samples_between(self, start: float, end: float | None) -> int:
        """Samples of the segment `start` to `end` (seconds; None is the end of the audio); 0 for an empty segment.

        Raises:
            AudioError: a time is negative or not finite.
        """
        first, last = segment_samples(self.num_samples, self.sample_rate, start, end)
        return last - first


class Cut(NamedTuple):
    """What is wanted of a recording."""

    start: float
    end: float | None
    channel: Channel
    keep_int16: bool = False
    """True: samples stored with 16 bits stay so."""

    def samples(self, sample_rate: int, num_samples: int = MOST_SAMPLES) -> tuple[int, int]:
        """First sample and one past the last."""
        return segment_samples(num_samples, sample_rate, self.start, self.end)

    def of(self, block: np.ndarray) -> np.ndarray:
        """(samples, channels) to (samples,) float32, or int16 where that is kept."""
        if self.channel == "mix":
            return block.mean(axis=1, dtype=np.float32)
        if not (isinstance(self.channel, int) and 0 <= self.channel < block.shape[1]):
            raise AudioError(f"channel {self.channel} asked for, the audio has {block.shape[1]} (counted from 0)")
        dtype = np.int16 if self.keep_int16 and block.dtype == np.int16 else np.float32
        return block[:, self.channel].astype(dtype)

    def joined(self, blocks: Iterable[np.ndarray]) -> np.ndarray:
        """Blocks (samples, channels) of int16, or of floats of -1 to 1, to (samples,) on the scale of int16."""
        parts = [self.of(block) for block in blocks]
        waveform = parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.float32)])
        if waveform.dtype == np.float32:
            waveform *= np.float32(INT16_SCALE)
        return waveform


class Decoder(Protocol):
    """Audio that has been opened."""

    sample_rate: int

    def info(self) -> AudioInfo: ...
    def read(self, cut: Cut) -> np.ndarray: ...
    def close(self) -> None: ...


class WavDecoder:
    """16-bit PCM in a RIFF file: nothing to decode."""

    def __init__(self, encoded: memoryview | BinaryIO, sample_rate: int, channels: int, offset: int, size: int) -> None:
        """`size` bytes of samples begin at `offset`."""
        self.sample_rate, self._encoded, self._channels, self._offset = sample_rate, encoded, channels, offset
        self._num_samples = size // (2 * channels)

    def info(self) -> AudioInfo:
        return AudioInfo(self._num_samples, self.sample_rate, self._channels)

    def read(self, cut: Cut) -> np.ndarray:
        first, last = cut.samples(self.sample_rate, self._num_samples)
        offset, count = self._offset + 2 * self._channels * first, self._channels * (last - first)
        if isinstance(self._encoded, memoryview):
            samples = np.frombuffer(self._encoded, "<i2", count, offset)
        else:
            self._encoded.seek(offset)
            samples = np.fromfile(self._encoded, "<i2", count)
        return cut.of(samples.reshape(-1, self._channels))

    def close(self) -> None:
        return


class SndfileDecoder:
    """What libsndfile reads."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        # A file is read by its number: libsndfile then needs no call of Python for each piece.
        file = stream if isinstance(stream, io.BytesIO) else stream.fileno()
        self._file = soundfile.SoundFile(file, closefd=False)
        self.sample_rate = self._file.samplerate
        self.is_believable = self._file.frames <= SAMPLES_A_BYTE * size

    def info(self) -> AudioInfo:
        return AudioInfo(self._file.frames, self.sample_rate, self._file.channels)

    def read(self, cut: Cut) -> np.ndarray:
        whole = cut.keep_int16 and self._file.subtype == "PCM_16" and cut.channel != "mix"
        span = cut.samples(self.sample_rate, self._file.frames)
        waveform = cut.joined(self._blocks(*span, "int16" if whole else "float32"))
        return sane(waveform) if self._file.subtype in ("FLOAT", "DOUBLE") else waveform

    def close(self) -> None:
        self._file.close()

    def _blocks(self, first: int, last: int, dtype: str) -> Iterator[np.ndarray]:
        """Blocks (samples, channels) of what there is between two samples."""
        if first:
            self._file.seek(first)
        size = max(1, BLOCK // self._file.channels)
        while first < last:
            try:
                block = self._file.read(min(size, last - first), dtype=dtype, always_2d=True)
            except soundfile.LibsndfileError as error:
                raise AudioError(f"damaged, or cut short, after sample {first} ({error.error_string})") from None
            if not len(block):
                return
            yield block
            first += len(block)


class AvDecoder:
    """What FFmpeg's libraries read, through PyAV. `info` or `read` is called, once: both run through the audio."""

    def __init__(self, stream: BinaryIO, container: str) -> None:
        """`container` is FFmpeg's name of the format.

        Raises:
            AudioError: PyAV is not installed, or does not read it.
        """
        try:
            import av
        except ImportError:
            raise AudioError(f"{container} audio needs PyAV: pip install av") from None
        self._error = av.FFmpegError
        try:
            self._container = av.open(stream, format=container, metadata_errors="ignore")
        except av.FFmpegError as error:
            raise AudioError(f"{container}: {error.strerror}") from None
        if not self._container.streams.audio:
            raise AudioError(f"{container}: no audio in it")
        self._resampler = av.AudioResampler(format="fltp")
        self._frames = self._decoded()
        self._first = next(self._frames, None)
        if self._first is None:
            raise AudioError(f"{container}: no samples")
        self.sample_rate, self._channels = self._first[0], len(self._first[1])

    def info(self) -> AudioInfo:
        return AudioInfo(
            sum(len(block) for block in self._blocks(0, MOST_SAMPLES + 1)), self.sample_rate, self._channels
        )

    def read(self, cut: Cut) -> np.ndarray:
        return sane(cut.joined(self._blocks(*cut.samples(self.sample_rate))))

    def close(self) -> None:
        self._container.close()

    def _blocks(self, first: int, last: int) -> Iterator[np.ndarray]:
        place = 0
        for rate, samples in itertools.chain([self._first], self._frames):
            if (rate, len(samples)) != (self.sample_rate, self._channels):
                raise AudioError("its sample rate or number of channels changes on the way")
            block = samples.T[max(0, first - place) : max(0, last - place)]
            if len(block):
                yield block
            place += samples.shape[1]
            if place >= last:
                return

    def _decoded(self) -> Iterator[tuple[int, np.ndarray]]:
        """Sample rate and (channels, samples) of each frame."""
        try:
            for frame in itertools.chain(self._container.decode(audio=0), [None]):
                for converted in self._resampler.resample(frame):
                    yield converted.sample_rate, converted.to_ndarray()
        except self._error as error:
            raise AudioError(f"not decodable: {error.strerror}") from None


def sane(waveform: np.ndarray) -> np.ndarray:
    """A waveform that was floating point, unless it is damaged.

    Raises:
        AudioError: it holds what is not a number, or is far above full scale.
    """
    peak = np.abs(waveform).max(initial=0.0)
    if not peak <= LOUDEST:
        raise AudioError(f"samples of {peak / INT16_SCALE:g} times full scale: damaged, or not scaled to -1 to 1")
    return waveform


def segment_samples(num_samples: int, sample_rate: int, start: float, end: float | None) -> tuple[int, int]:
    """First sample and one past the last of the segment `start` to `end` (seconds), within the audio.

    Raises:
        AudioError: times that are no times.
    """
    if not (math.isfinite(start) and start >= 0 and (end is None or math.isfinite(end))):
        raise AudioError(f"no segment: from {start} s to {end} s")
    last = num_samples if end is None else min(num_samples, round(end * sample_rate))
    return min(round(start * sample_rate), last), last
