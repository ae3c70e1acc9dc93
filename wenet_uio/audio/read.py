"""The one place where audio is opened: headers and waveforms of encoded audio, as numpy arrays.

Plain wav is read as it lies; libsndfile reads wav of every kind, flac, ogg, opus, mp3, aiff, au, sphere, …; what it
cannot, m4a, aac, wma, webm and amr, PyAV does where it is installed. The content decides, not the name of the file.
A header is believed only as far as the data bears it out: memory and time go with what there is, not what is claimed.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import BinaryIO

import numpy as np
import soundfile

from wenet_uio.audio.decoders import (
    INT16_SCALE,
    MOST_SAMPLES,
    AudioError,
    AudioInfo,
    AvDecoder,
    Channel,
    Cut,
    Decoder,
    SndfileDecoder,
    WavDecoder,
)

__all__ = ["INT16_SCALE", "AudioError", "AudioInfo", "audio_info", "read_audio"]

Source = bytes | memoryview | str
"""Encoded audio, or the path of a file of it."""

SAMPLE_RATES = (1_000, 768_000)
"""Hz; a header that says less or more is damaged."""
HEAD = 4096
"""Bytes in which the samples of a plain wav file begin."""
WAVE_FORMAT_PCM = 1
MOST_CHANNELS = 1024
"""As libsndfile has it."""
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of opening a file that say nothing about the file."""
AV_CONTAINERS = (
    (4, b"ftyp", "mov"),  # m4a, mp4, 3gp
    (0, b"\x1a\x45\xdf\xa3", "matroska"),  # webm
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),  # wma
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
    (0, b"#!AMR", "amr"),
    (0, b"OggS", "ogg"),  # with what libsndfile does not decode
    (0, b"fLaC", "flac"),  # written to a pipe, which does not say how long it is
)
"""Where which bytes of a file name the demuxer of FFmpeg that reads it; no other is let near it."""


def audio_info(source: Source) -> AudioInfo:
    """Number of samples, sample rate and channels; decodes only what does not say how long it is.

    Raises:
        AudioError: not audio that can be read, or without samples.
    """
    with _decoder(source) as decoder:
        info = decoder.info()
        if info.num_samples <= 0:
            raise AudioError(f"no samples ({info.sample_rate} Hz, {info.channels} channel(s))")
        if info.num_samples > MOST_SAMPLES:
            raise AudioError(f"more than {MOST_SAMPLES} samples; cut it into shorter files")
        return info


def read_audio(
    source: Source, start: float = 0.0, end: float | None = None, channel: Channel = 0, *, keep_int16: bool = False
) -> tuple[np.ndarray, int]:
    """Decode one channel, or the mean of all, between two times (seconds; `end` None is the end).

    Returns:
        the waveform (samples,) float32 on the scale of int16, and its sample rate in Hz; with `keep_int16` it is int16
        where it is so stored.

    Raises:
        AudioError: unreadable, empty, damaged, or without that channel.
    """
    with _decoder(source) as decoder:
        waveform = decoder.read(Cut(start, end, channel, keep_int16))
        if not len(waveform):
            raise AudioError(f"no samples between {start} s and {f'{end} s' if end is not None else 'the end'}")
        return waveform, decoder.sample_rate


@contextmanager
def _decoder(source: Source) -> Iterator[Decoder]:
    """Open audio; what goes wrong with it, then and later, is an AudioError that names its path."""
    where = f"{source}: " if isinstance(source, str) else ""
    try:
        if isinstance(source, str):
            if not stat.S_ISREG(os.stat(source).st_mode):
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
    if isinstance(encoded, memoryview):
        size, head = len(encoded), encoded[:HEAD].tobytes()
    else:
        size, head = os.fstat(encoded.fileno()).st_size, encoded.read(HEAD)
        encoded.seek(0)
    if not size:
        raise AudioError("empty: 0 bytes")
    if wav := _plain_wav(encoded, head, size):
        return wav
    stream = io.BytesIO(encoded) if isinstance(encoded, memoryview) else encoded
    try:
        decoder = SndfileDecoder(stream, size)
        if decoder.is_believable:
            return decoder
        reason = f"its header claims {decoder.info().num_samples} samples in {size} bytes"
        decoder.close()
    except soundfile.LibsndfileError as error:
        reason = error.error_string
    for place, mark, container in AV_CONTAINERS:
        if head[place : place + len(mark)] == mark:
            stream.seek(0)
            return AvDecoder(stream, container)
    if head.startswith(b"NIST_1A") and b"shorten" in head:
        reason = "sphere compressed with shorten: convert it with `sph2pipe -f wav IN OUT`"
    elif reason.startswith("Format not recognised"):
        reason = "no known format; samples without a header must be made into wav first"
    raise AudioError(reason)


def _plain_wav(encoded: memoryview | BinaryIO, head: bytes, size: int) -> WavDecoder | None:
    """A decoder for 16-bit PCM whose header is short and sound; None leaves the audio to libsndfile."""
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    channels = rate = 0
    place = 12
    while place + 8 <= len(head):
        name, length = struct.unpack_from("<4sI", head, place)
        place += 8
        if name == b"data":
            length = min(length, size - place)
            return WavDecoder(encoded, rate, channels, place, length) if channels and length else None
        if name == b"fmt " and place + 16 <= len(head):
            kind, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", head, place)
            if (kind, frame, bits) != (WAVE_FORMAT_PCM, 2 * channels, 16) or channels > MOST_CHANNELS:
                return None
        place += length + length % 2
    return None
