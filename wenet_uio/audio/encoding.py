"""Encode audio for a shard as 16-bit wav, flac or opus.

The same samples always give the same bytes.
"""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
import soundfile

from wenet_uio.audio.decoders import INT16_SCALE, AudioError
from wenet_uio.audio.ogg import checksum

Encoding = Literal["wav", "flac", "opus"]
"""Encodings of audio in shards."""
Lossy = Literal["opus", "mp3", "mulaw"]
"""Encodings that augmentation uses. libsndfile encodes no AMR and no AAC, and opus has no choice of
the bit rate."""
FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "mulaw": ("WAV", "ULAW"),
}
"""Names of format and subtype in libsndfile."""
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
"""Sample rates that opus stores, in Hz."""
MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
"""Sample rates that mp3 stores, in Hz."""
BLOCK_SECONDS = 60
"""Seconds written at a time; libsndfile keeps a block on its stack."""


def encode_audio(samples: np.ndarray, sample_rate: int, encoding: Encoding | Lossy) -> bytes:
    """Encode samples (samples, channels) on the scale of int16; louder samples are clipped.

    Raises:
        AudioError: the encoding does not support the sample rate or the number of channels.
    """
    if encoding == "opus" and sample_rate not in OPUS_RATES:
        raise AudioError(
            f"opus stores {', '.join(map(str, OPUS_RATES))} Hz, not {sample_rate}; resample it"
        )

    if samples.dtype != np.int16:
        samples = samples.round().clip(-INT16_SCALE, INT16_SCALE - 1).astype(np.int16)

    file_format, subtype = FORMATS[encoding]
    buffer = io.BytesIO()
    try:
        with soundfile.SoundFile(
            buffer, "w", sample_rate, samples.shape[1], format=file_format, subtype=subtype
        ) as file:
            for first in range(0, len(samples), BLOCK_SECONDS * sample_rate):
                file.write(samples[first : first + BLOCK_SECONDS * sample_rate])
    except soundfile.LibsndfileError as error:
        raise AudioError(
            f"{samples.shape[1]} channels at {sample_rate} Hz as {encoding}: {error}"
        ) from None

    encoded = buffer.getvalue()
    return _zero_serial_number(encoded) if encoding == "opus" else encoded


def _zero_serial_number(ogg: bytes) -> bytes:
    """Set the serial number of an Ogg stream to 0.

    libsndfile draws a random number, so that equal files would differ.

    Source: RFC 3533, section 6.
    """
    data = bytearray(ogg)
    page = 0
    while page < len(data):
        assert data[page : page + 4] == b"OggS"

        # Byte 26 of a page is the number of its segments, and the sizes of the segments follow.
        segments = data[page + 26]
        page_end = page + 27 + segments + sum(data[page + 27 : page + 27 + segments])

        # Bytes 14 to 17 are the serial number, and 22 to 25 the checksum of the page.
        data[page + 14 : page + 18] = bytes(4)
        page_checksum = checksum(bytes(data[page:page_end]))
        data[page + 22 : page + 26] = page_checksum.to_bytes(4, "little")
        page = page_end

    return bytes(data)
