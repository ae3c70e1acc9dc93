"""The one place where audio is opened: headers and waveforms of encoded audio, as numpy arrays.

The content of a file decides how it is read, not its name. Plain 16-bit wav needs no decoding. libsndfile decodes
other wav, flac, ogg, opus, mp3, aiff, au, caf, w64 and sphere. PyAV, if it is installed, decodes m4a, aac, wma, webm,
amr, and flac that was written to a pipe. Memory and time depend on the data in the file, not on what a header claims.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial, wraps
from typing import BinaryIO, Concatenate, ParamSpec, TypeVar

import numpy as np
import soundfile

from wenet_uio.audio.decoders import (
    INT16_SCALE,
    MOST_SAMPLES,
    AudioError,
    AudioInfo,
    AvDecoder,
    Channel,
    Decoder,
    Excerpt,
    SndfileDecoder,
    WavDecoder,
)
from wenet_uio.audio.tensors import is_tensor, wav_of_tensor
from wenet_uio.audio.wav_header import is_whole, wav_is_whole
from wenet_uio.crashes import rehearse

__all__ = ["INT16_SCALE", "AudioError", "AudioInfo", "audio_info", "decodes", "read_audio"]

Source = bytes | memoryview | str
"""Encoded audio, or the path of an audio file."""
Given = TypeVar("Given", bound=Source)
Options = ParamSpec("Options")
Result = TypeVar("Result")

SAMPLE_RATES = (1_000, 768_000)
"""Lowest and highest sample rate in Hz; a header with another rate is damaged."""
HEAD = 4096
"""Bytes; a plain wav file whose samples begin later is left to libsndfile."""
WAVE_FORMAT_PCM = 1
MOST_CHANNELS = 1024
"""The limit of libsndfile."""
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of opening a file that are not the fault of the file."""
AV_CONTAINERS = (
    (4, b"ftyp", "mov"),  # m4a, mp4, 3gp
    (0, b"\x1a\x45\xdf\xa3", "matroska"),  # webm
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),  # wma
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
    (0, b"#!AMR", "amr"),
    (0, b"OggS", "ogg"),  # with a codec that libsndfile does not decode
    (0, b"fLaC", "flac"),  # written to a pipe, without its length
)
"""Offset and bytes that identify a format, and the FFmpeg demuxer for it. No other demuxer is ever used."""


def decodes(
    function: Callable[Concatenate[Given, Options], Result],
) -> Callable[Concatenate[Given, Options], Result]:
    """Decorate a function that decodes its first argument.

    In a careful process (`wenet_uio.crashes`) the function raises AudioError if a decoder crashes; in other processes
    the process crashes.
    """

    @wraps(function)
    def decode(source: Given, *args: Options.args, **options: Options.kwargs) -> Result:
        if crash := rehearse(partial(function, source, *args, **options)):
            where = f"{source}: " if isinstance(source, str) else ""
            raise AudioError(f"{where}the decoder crashed its process ({crash}); remove or convert the audio")
        return function(source, *args, **options)

    return decode


@decodes
def audio_info(source: Source) -> AudioInfo:
    """Number of samples, sample rate and channels. Audio is decoded only if its header does not tell its length.

    Raises:
        AudioError: the audio cannot be read, or has no samples.
    """
    with _decoder(source) as decoder:
        info = decoder.info()
        if info.num_samples <= 0:
            raise AudioError(f"no samples ({info.sample_rate} Hz, {info.channels} channel(s))")
        if info.num_samples > MOST_SAMPLES:
            raise AudioError(f"more than {MOST_SAMPLES} samples; split it into shorter files")
        return info


@decodes
def read_audio(
    source: Source, start: float = 0.0, end: float | None = None, channel: Channel = 0, *, keep_int16: bool = False
) -> tuple[np.ndarray, int]:
    """Decode a segment of one channel, or of the mean of all channels.

    Args:
        start: seconds.
        end: seconds; None is the end of the audio.
        channel: number from 0, or `mix`.
        keep_int16: return int16 if the audio is stored with 16 bits.

    Returns:
        the waveform (samples,) as float32 on the scale of int16, and its sample rate in Hz.

    Raises:
        AudioError: the audio cannot be read, is empty or damaged, or does not have the channel.
    """
    with _decoder(source) as decoder:
        waveform = decoder.read(Excerpt(start, end, channel, keep_int16))
        if not len(waveform):
            raise AudioError(f"no samples between {start} s and {f'{end} s' if end is not None else 'the end'}")
        return waveform, decoder.sample_rate


@contextmanager
def _decoder(source: Source) -> Iterator[Decoder]:
    """Open audio for a block. Errors of opening and of the block become AudioError with the path of the file."""
    where = f"{source}: " if isinstance(source, str) else ""
    try:
        if isinstance(source, str):
            if not stat.S_ISREG(os.stat(source).st_mode):  # noqa: PTH116 - runs for every file that is read
                raise AudioError("not a file")
            opened = open(source, "rb")  # noqa: SIM115 - closed below
        else:
            opened = nullcontext(memoryview(source))
        with opened as encoded, closing(_open(encoded)) as decoder:
            if not SAMPLE_RATES[0] <= decoder.sample_rate <= SAMPLE_RATES[1]:
                raise AudioError(
                    f"sample rate {decoder.sample_rate} Hz is not within {SAMPLE_RATES[0]} to {SAMPLE_RATES[1]} Hz"
                )
            yield decoder
    except AudioError as error:
        raise AudioError(f"{where}{error}") from None
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{where}{error.error_string}") from None
    except OSError as error:
        if error.errno in OUT_OF_RESOURCES:
            raise
        raise AudioError(f"{where}{error.strerror or error}") from None


def _open(encoded: memoryview | BinaryIO) -> Decoder:
    size, head = _size_and_head(encoded)
    if wav := _plain_wav(encoded, head, size):
        return wav
    if is_tensor(head):
        return _open(memoryview(wav_of_tensor(encoded if isinstance(encoded, memoryview) else encoded.read())))
    stream = io.BytesIO(_without_copy(encoded)) if isinstance(encoded, memoryview) else encoded
    try:
        decoder = SndfileDecoder(stream, size)
        if decoder.is_believable:
            decoder.is_whole = wav_is_whole(head, size)
            return decoder
        reason = f"its header claims {decoder.info().num_samples} samples in {size} bytes"
        decoder.close()
    except soundfile.LibsndfileError as error:
        reason = error.error_string
    container = next((name for place, mark, name in AV_CONTAINERS if head[place : place + len(mark)] == mark), None)
    if container:
        stream.seek(0)
        return AvDecoder(stream, container)
    raise AudioError(_with_advice(reason, head))


def _size_and_head(encoded: memoryview | BinaryIO) -> tuple[int, bytes]:
    """Bytes of encoded audio, and the first HEAD of them. Raises: AudioError: there are none."""
    if isinstance(encoded, memoryview):
        size, head = len(encoded), encoded[:HEAD].tobytes()
    else:
        size, head = os.fstat(encoded.fileno()).st_size, encoded.read(HEAD)
        encoded.seek(0)
    if not size:
        raise AudioError("empty: 0 bytes")
    return size, head


def _without_copy(encoded: memoryview) -> bytes | memoryview:
    """The bytes object behind a view of all of it, which BytesIO shares; other views are copied by BytesIO."""
    behind = encoded.obj
    return behind if isinstance(behind, bytes) and len(behind) == len(encoded) else encoded


def _with_advice(reason: str, head: bytes) -> str:
    """The reason why audio cannot be read; for known formats also how to convert the audio."""
    if head.startswith(b"NIST_1A") and b"shorten" in head:
        return "sphere compressed with shorten: convert it with `sph2pipe -f wav IN OUT`"
    if reason.startswith("Format not recognised"):
        return "no known format; samples without a header must be converted to wav first"
    return reason


def _plain_wav(encoded: memoryview | BinaryIO, head: bytes, size: int) -> WavDecoder | None:
    """A decoder for 16-bit PCM with a short and valid header; None leaves the audio to libsndfile."""
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    channels = rate = 0
    place = 12
    while place + 8 <= len(head):
        name, length = struct.unpack_from("<4sI", head, place)
        place += 8
        if name == b"data":
            there = min(length, size - place)
            if not channels or not there:
                return None
            decoder = WavDecoder(encoded, rate, channels, place, there)
            decoder.is_whole = is_whole(length, there)
            return decoder
        if name == b"fmt " and place + 16 <= len(head):
            kind, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", head, place)
            if (kind, frame, bits) != (WAVE_FORMAT_PCM, 2 * channels, 16) or channels > MOST_CHANNELS:
                return None
        place += length + length % 2
    return None
