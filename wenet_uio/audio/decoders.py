"""Decoders for opened audio. They read a segment of one channel, block by block."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO, Literal, NamedTuple, Protocol, cast

import numpy as np
import soundfile

from wenet_uio.audio.interruption import check_interruption
from wenet_uio.audio.partial_file import Encoded, PartialFile, in_memory

INT16_SCALE = 32768.0
"""Factor from the scale of libsndfile, -1 to 1, to that of int16, which Kaldi's features expect."""
FRAME_RATE = 100
"""Frames a second of stored features: every frame counts 10 ms, as in `filter_conf`."""
MOST_SAMPLES = 2**32 - 1
"""Samples of one channel: the largest number that an index can store; a day at 48 kHz."""
LOUDEST = 1000 * INT16_SCALE
"""Floating point audio with louder samples, or with samples that are not numbers, is damaged."""
SAMPLES_A_BYTE = 8192
"""Samples per byte of a file; no codec reaches that, even for silence."""
BLOCK = 1 << 22
"""Samples of all channels together that are decoded at a time."""

LENGTH_TOLERANCE = 0.1
"""Seconds by which the length of audio may differ from what a list or an index says."""

Channel = int | Literal["mix"]
"""Number of a channel, counted from 0, or the mean of all channels."""


class AudioError(ValueError):
    """Audio cannot be read; the message says why."""


@dataclass(frozen=True)
class AudioInfo:
    """Length and format of audio, from its header."""

    num_samples: int
    """Of one channel."""
    sample_rate: int
    """Hz."""
    channels: int
    is_whole: bool = True
    """False if a header of `claimed_size` claims more samples than the file has. Other formats must
    be decoded to know."""

    @property
    def is_features(self) -> bool:
        """Whether these are stored features.

        Then frames count as samples, and features per frame as channels.
        """
        return self.sample_rate == FRAME_RATE

    @property
    def cut_short(self) -> str:
        """What a message says of audio that is not whole; empty for others."""
        if self.is_whole:
            return ""
        return f"cut short: the file has {self.num_samples} samples, its header claims more"

    def samples_between(self, start: float, end: float | None) -> int:
        """Return the number of samples of a segment; 0 if it is empty.

        Args:
            start, end: seconds; an end of None is the end of the audio.

        Raises:
            AudioError: a time is negative or not finite, the segment ends after the audio, or it is
                all of an audio that is cut short.
        """
        is_all = start == 0 and end is None
        if is_all and not self.is_whole:
            raise AudioError(self.cut_short)

        first, last = segment_samples(self.num_samples, self.sample_rate, start, end)
        if last > first:
            why = why_past_the_end(start, end, (last - first) / self.sample_rate)
            if why:
                raise AudioError(why)
        return last - first


class Excerpt(NamedTuple):
    """The part of a recording to read."""

    start: float
    """Seconds."""
    end: float | None
    """Seconds; None is the end of the audio."""
    channel: Channel | None
    """None: all channels."""
    keep_int16: bool = False
    """Return int16 if the audio is stored with 16 bits."""

    def samples(self, sample_rate: int, num_samples: int = MOST_SAMPLES) -> tuple[int, int]:
        """Return the first sample, and one past the last."""
        return segment_samples(num_samples, sample_rate, self.start, self.end)

    def convert_block(self, block: np.ndarray) -> np.ndarray:
        """Convert a block (samples, channels) to (samples,) of the channel, as float32 or int16.

        With all channels the block keeps its shape.
        """
        if self.channel == "mix":
            if block.shape[1] == 1:  # faster than a mean
                return block[:, 0].astype(np.float32)
            return block.mean(axis=1, dtype=np.float32)

        dtype = np.int16 if self.keep_int16 and block.dtype == np.int16 else np.float32
        if self.channel is None:
            return block.astype(dtype)

        if not (isinstance(self.channel, int) and 0 <= self.channel < block.shape[1]):
            raise AudioError(
                f"channel {self.channel} (counted from 0) requested, the audio has "
                f"{block.shape[1]} channel(s)"
            )

        return block[:, self.channel].astype(dtype)

    def join_blocks(self, blocks: Iterable[np.ndarray]) -> np.ndarray:
        """Convert and join blocks (samples, channels) of int16 or of floats from -1 to 1.

        Returns:
            the waveform (samples,) on the scale of int16; (samples, channels) of all channels.
        """
        parts = [self.convert_block(block) for block in blocks] or [np.zeros(0, np.float32)]
        waveform = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if waveform.dtype == np.float32:
            waveform *= np.float32(INT16_SCALE)

        return waveform


class Decoder(Protocol):
    """Opened audio."""

    sample_rate: int
    """Hz."""

    def info(self) -> AudioInfo:
        """Return the length and format."""
        ...

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment on the scale of int16, as float32 or int16."""
        ...

    def close(self) -> None:
        """Free the resources of the decoder; the file belongs to the caller."""
        ...


class Samples(NamedTuple):
    """A recording that is decoded already."""

    array: np.ndarray
    """(samples, channels), int16, or float32 from -1 to 1."""
    sample_rate: int
    """Hz."""


class Opened(NamedTuple):
    """A recording that the caller has opened, and closes."""

    decoder: Decoder


class ArrayDecoder:
    """Reads samples that are in memory."""

    def __init__(self, samples: Samples) -> None:
        self._samples, self.sample_rate = samples

    def info(self) -> AudioInfo:
        """Return the length and format."""
        num_samples, channels = self._samples.shape
        return AudioInfo(num_samples, self.sample_rate, channels)

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment.

        Raises:
            AudioError: samples are no sound, or there is no such channel.
        """
        first, last = excerpt.samples(self.sample_rate, len(self._samples))
        segment = self._samples[first:last]
        if segment.dtype == np.int16:
            return excerpt.convert_block(segment)
        return _checked_floats(excerpt.join_blocks([segment]))

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class WavDecoder:
    """Reads 16-bit PCM in a RIFF file, which needs no decoding."""

    is_whole = True
    """False if the header claims more samples than the file has."""

    def __init__(
        self,
        encoded: Encoded,
        sample_rate: int,
        channels: int,
        offset: int,
        size: int,
    ) -> None:
        """`size` bytes of samples begin at byte `offset`."""
        self.sample_rate = sample_rate
        self._encoded = encoded
        self._channels = channels
        self._offset = offset
        self._num_samples = size // (2 * channels)

    def info(self) -> AudioInfo:
        """Return the length and format."""
        return AudioInfo(self._num_samples, self.sample_rate, self._channels, self.is_whole)

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment."""
        encoded = in_memory(self._encoded)
        first, last = excerpt.samples(self.sample_rate, self._num_samples)
        offset = self._offset + 2 * self._channels * first  # 2 bytes a sample
        count = self._channels * (last - first)
        if isinstance(encoded, memoryview):
            samples = np.frombuffer(encoded, "<i2", count, offset)
        else:
            encoded.seek(offset)
            samples = np.fromfile(encoded, "<i2", count)

        return excerpt.convert_block(samples.reshape(-1, self._channels))

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class Known(NamedTuple):
    """What is known of audio better than libsndfile knows it; None: it is right."""

    num_samples: int | None = None
    last_seek: int | None = None
    """Sample beyond which seeking is not right; what follows is decoded from there."""


class SndfileDecoder:
    """Reads the formats of libsndfile."""

    is_whole = True
    """False if the header claims more samples than the file has."""

    def __init__(self, stream: BinaryIO | PartialFile, size: int, lead: int = 0) -> None:
        """Open audio of `size` bytes.

        Args:
            lead: samples before a segment that must be decoded for its first samples to be right.
        """
        # With a file descriptor, libsndfile does not call Python for each block.
        is_local = not isinstance(stream, (io.BytesIO, PartialFile))
        file = stream.fileno() if is_local else cast(BinaryIO, stream)
        self._file = soundfile.SoundFile(file, closefd=False)
        self._stream = stream  # stays open as long as libsndfile reads it
        self._lead = lead
        self._last_seek: int | None = None
        self.sample_rate = self._file.samplerate
        self.num_samples = self._file.frames
        self.is_believable = self._file.frames <= SAMPLES_A_BYTE * size
        """Whether a file of this size can hold as many samples as the header claims."""

    def info(self) -> AudioInfo:
        """Return the length and format, as the header claims."""
        return AudioInfo(self.num_samples, self.sample_rate, self.channels, self.is_whole)

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self._file.channels

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment.

        Raises:
            AudioError: the audio is damaged, or does not have the channel.
        """
        first, last = excerpt.samples(self.sample_rate, self.num_samples)
        blocks = self.blocks(first, last, self.dtype_for(excerpt))
        return self.check_sound(excerpt.join_blocks(blocks))

    def know(self, known: Known) -> None:
        """Take what a parser of the format knows better than libsndfile. Call this before `read`."""
        self._last_seek = known.last_seek
        if known.num_samples is not None:
            self.num_samples = known.num_samples

    def dtype_for(self, excerpt: Excerpt) -> Literal["int16", "float32"]:
        """Return the type of samples to decode: int16 if it is asked for, stored, and not mixed."""
        if excerpt.keep_int16 and self._file.subtype == "PCM_16" and excerpt.channel != "mix":
            return "int16"
        return "float32"

    def check_sound(self, waveform: np.ndarray) -> np.ndarray:
        """Return a decoded waveform.

        Raises:
            AudioError: it was stored as floating point, and is no sound.
        """
        if self._file.subtype in ("FLOAT", "DOUBLE"):
            return _checked_floats(waveform)
        return waveform

    def close(self) -> None:
        """Close libsndfile's handle."""
        self._file.close()

    def blocks(
        self, first: int, last: int, dtype: Literal["int16", "float32"]
    ) -> Iterator[np.ndarray]:
        """Yield blocks (samples, channels) from sample `first` up to `last` or the end of the data.

        Called once for each decoder: it does not go back to the start of the audio.
        """
        start = max(0, first - self._lead)
        if self._last_seek is not None:
            start = min(start, self._last_seek)
        position = self._seek_or_stay(start)
        most_samples = max(1, BLOCK // self.channels)
        while position < last:
            check_interruption()
            count = min(most_samples, last - position)
            try:
                block = self._file.read(count, dtype=dtype, always_2d=True)
            except soundfile.LibsndfileError as error:
                raise AudioError(
                    f"damaged, or cut short, after sample {position} ({error.error_string})"
                ) from None

            if not len(block):
                return

            wanted = block[max(0, first - position) :]
            position += len(block)
            if len(wanted):
                yield wanted

    def _seek_or_stay(self, sample: int) -> int:
        """Go to a sample, or stay at the first one if libsndfile cannot seek in the format.

        Returns:
            the sample that is decoded next.
        """
        if not sample:
            return 0
        try:
            return self._file.seek(sample)
        except soundfile.LibsndfileError:  # GSM 6.10, G.72x and others are decoded from the start
            return 0


class _Frame(NamedTuple):
    """Samples of FFmpeg, decoded together."""

    start: int
    """Number of its first sample in the audio."""
    samples: np.ndarray
    """(channels, samples), float32 from -1 to 1."""

    @property
    def end(self) -> int:
        """One past the number of its last sample."""
        return self.start + self.samples.shape[1]


@lru_cache(maxsize=1)
def _audio_decoders() -> list[str]:
    """Return the names of FFmpeg's decoders of audio.

    FFmpeg decodes frames of all streams while it opens a file. Most of its flaws are in decoders of
    pictures, which a film of a stranger would reach.
    """
    from av.codec import Codec, codecs_available

    names: list[str] = []
    for name in sorted(codecs_available):
        with suppress(ValueError):  # it encodes only
            codec = Codec(name, "r")
            if codec.type == "audio":
                names.append(codec.name)
    return names


class AvDecoder:
    """Reads the formats of FFmpeg through PyAV.

    Audio is decoded once, from its first sample on: `info` consumes it, and so does `read` up to the
    end of its segment. While `keeps_samples` is True, samples from the start of the last segment on
    are kept, so that the next segment may overlap with it.
    """

    keeps_samples = False
    most_seconds = math.inf
    """Seconds of all channels together after which `info` decodes no further."""

    def __init__(self, stream: BinaryIO | PartialFile, container: str, is_whole: bool) -> None:
        """Open audio, and decode its first frame.

        Args:
            container: name of the format in FFmpeg.
            is_whole: False if the header claims more samples than the file has.

        Raises:
            AudioError: PyAV is not installed, or cannot read the audio.
        """
        try:
            import av
            import av.error
        except ImportError:
            raise AudioError(f"{container} audio needs PyAV: pip install av") from None

        self._error = av.error.FFmpegError
        self._is_whole = is_whole
        try:
            self._container = av.open(
                stream,
                "r",
                format=container,
                options={"codec_whitelist": ",".join(_audio_decoders())},
                metadata_errors="ignore",
            )
        except av.error.FFmpegError as error:
            raise AudioError(f"{container}: {error.strerror}") from None

        if not self._container.streams.audio:
            raise AudioError(f"{container}: no audio in it")

        codec_context = self._container.streams.audio[0].codec_context
        if codec_context is None:
            raise AudioError(f"{container}: FFmpeg does not know its codec")

        # FFmpeg's own threads must not be: a forked worker that frees a decoder of its parent would
        # wait for them forever. Loaders decode in many processes anyway.
        codec_context.thread_count = 1

        # Sample rate and channels are those of decoded samples: headers of AAC may state others.
        self._frames = self._decode_frames()
        decoded = next(self._frames, None)
        if decoded is None:
            raise AudioError(f"{container}: no samples")

        self.sample_rate, samples = decoded
        self._channels = len(samples)
        self._position = samples.shape[1]
        """Number of samples that are decoded."""
        self._kept = [_Frame(0, samples)]
        """Frames that may be read (again), up to the position."""

    @property
    def reads_from(self) -> int:
        """The first sample that can still be read."""
        return self._kept[0].start if self._kept else self._position

    def info(self) -> AudioInfo:
        """Return the length and format, after decoding all of the audio, or `most_seconds`."""
        most = min(MOST_SAMPLES, self.most_seconds * self.sample_rate / self._channels)
        num_samples = sum(len(block) for block in self._blocks(0, int(most) + 1))
        return AudioInfo(num_samples, self.sample_rate, self._channels, self._is_whole)

    def read(self, excerpt: Excerpt) -> np.ndarray:
        """Return the waveform (samples,) of a segment, after decoding the audio before it.

        Raises:
            AudioError: the audio is damaged, or does not have the channel.
        """
        first, last = excerpt.samples(self.sample_rate)
        waveform = excerpt.join_blocks(self._blocks(first, last))
        return _checked_floats(waveform)

    def close(self) -> None:
        """Close FFmpeg's handle."""
        self._container.close()

    def _blocks(self, first: int, last: int) -> Iterator[np.ndarray]:
        """Yield blocks (samples, channels) from sample `first` up to `last` or the end of audio.

        Frames before `first` are forgotten, and cannot be read again.
        """
        earlier = iter(self._kept)
        self._kept = []
        for frame in itertools.chain(earlier, self._decode_further()):
            if frame.end > first and self.keeps_samples:
                self._kept.append(frame)

            first_in_frame = max(0, first - frame.start)
            last_in_frame = max(0, last - frame.start)
            block = frame.samples.T[first_in_frame:last_in_frame]  # (samples, channels)
            if len(block):
                yield block
            if frame.end >= last:
                break

        self._kept.extend(earlier)  # the frames behind the segment, which the loop did not reach

    def _decode_further(self) -> Iterator[_Frame]:
        """Decode the frames from the position on, and move the position behind each of them."""
        for rate, samples in self._frames:
            if (rate, len(samples)) != (self.sample_rate, self._channels):
                raise AudioError(
                    "the sample rate or the number of channels changes within the audio"
                )

            frame = _Frame(self._position, samples)
            self._position = frame.end
            yield frame

    def _decode_frames(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the sample rate in Hz and the samples (channels, samples) of each frame."""
        try:
            for frame in self._container.decode(audio=0):
                check_interruption()
                samples = frame.to_ndarray()
                if not frame.format.is_planar:
                    samples = samples.reshape(-1, frame.layout.nb_channels).T
                yield frame.sample_rate, _float_samples(samples)
        except self._error as error:
            raise AudioError(f"cannot be decoded: {error.strerror}") from None


def _float_samples(samples: np.ndarray) -> np.ndarray:
    """Return samples of any type of FFmpeg as float32, on the scale of -1 to 1; the shape stays."""
    if samples.dtype.kind == "f":
        return samples.astype(np.float32, copy=False)
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - 128) / 128

    bits = 8 * samples.itemsize
    full_scale = 2.0 ** (bits - 1)  # of signed integers
    return samples.astype(np.float32) * np.float32(1 / full_scale)


def _checked_floats(waveform: np.ndarray) -> np.ndarray:
    """Return a waveform that was stored as floating point, after a check for damage.

    Raises:
        AudioError: a sample is not a number, or is far above full scale.
    """
    peak = np.abs(waveform).max(initial=0.0)
    if not peak <= LOUDEST:  # also true if the peak is NaN
        raise AudioError(
            f"samples of {peak / INT16_SCALE:g} times full scale: damaged, or not on the scale of "
            "-1 to 1"
        )

    return waveform


def segment_samples(
    num_samples: int, sample_rate: int, start: float, end: float | None
) -> tuple[int, int]:
    """Return the first sample of a segment, and one past the last, limited to the audio.

    Args:
        start, end: seconds; an end of None is the end of the audio.

    Raises:
        AudioError: a time is negative or not finite.
    """
    start_is_valid = math.isfinite(start) and start >= 0
    end_is_valid = end is None or math.isfinite(end)
    if not (start_is_valid and end_is_valid):
        raise AudioError(f"not a segment: from {start} s to {end} s")

    last = num_samples if end is None else min(num_samples, round(end * sample_rate))
    first = min(round(start * sample_rate), last)
    return first, last


def why_past_the_end(start: float, end: float | None, seconds: float) -> str | None:
    """Say why a segment cannot be whole: it ends after the audio; None if it does not.

    Args:
        start: seconds.
        end: seconds; None is the end of the audio.
        seconds: of the audio between start and end.
    """
    if end is None:
        return None

    missing_seconds = end - start - seconds
    if missing_seconds <= LENGTH_TOLERANCE:
        return None
    return f"the segment ends at {end:.2f} s, the audio at {start + seconds:.2f} s"
