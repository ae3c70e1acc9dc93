"""A short recording in every format, whole, cut short and joined, and ways to damage any of them."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import soundfile

from tests.support.audio.arrays import npy
from tests.support.audio.encoded import OPTIONS, encoded

ID3 = b"ID3\x03\0\0\0\0\0\x0a" + bytes(10)


def flipped(data: bytes, place: float) -> bytes:
    changed = bytearray(data)
    changed[int(place * (len(data) - 1))] ^= 0x10
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "whole": lambda data: data,
    "joined": lambda data: data + data,
    "id3": lambda data: ID3 + data,
    "cut": lambda data: data[: len(data) * 6 // 10],
    "header": lambda data: flipped(data, 0.001),
    "payload": lambda data: flipped(data, 0.5),
    "tail": lambda data: flipped(data, 0.9999),
    "zeros": lambda data: data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :],
    "empty": lambda data: b"",
}


def samples_of_every_format(*, with_ffmpeg: bool = True) -> dict[str, bytes]:
    """Audio by the suffix of its member; of each format also a file that is cut short.

    FFmpeg takes seconds to write its formats.
    """
    random = np.random.default_rng(3)
    noise = random.normal(0, 0.1, 24_000)
    found: dict[str, bytes] = {}
    for kind, subtype in [
        ("WAV", "PCM_16"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("WAVEX", "PCM_16"),
        ("RF64", "PCM_16"),
        ("W64", "PCM_16"),
        ("AIFF", "PCM_16"),
        ("AU", "PCM_16"),
        ("CAF", "PCM_16"),
        ("NIST", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
        ("MP3", "MPEG_LAYER_III"),
    ]:
        buffer = io.BytesIO()
        soundfile.write(buffer, noise, 16_000, format=kind, subtype=subtype)
        suffix = {"WAVEX": "wav", "RF64": "wav", "NIST": "sph"}.get(kind, kind.lower())
        found[f"{kind}_{subtype}.{suffix}".lower()] = buffer.getvalue()

    for name in OPTIONS if with_ffmpeg else ():
        data = encoded(name, 1.5)
        if data is not None:
            found[f"ffmpeg_{name.replace('.', '_')}.m4a"] = data

    found["features.npy"] = npy(random.normal(0, 1, (50, 80)).astype(np.float32))
    found["waveform.npy"] = npy(random.normal(0, 0.1, 8000).astype(np.float32))
    tagged = b"ID3\4\0\0\0\0\2\0" + bytes(256)
    found["tagged.mp3"] = tagged + found["mp3_mpeg_layer_iii.mp3"]
    found["tagged.flac"] = tagged + found["flac_pcm_16.flac"]
    found["joined.flac"] = 2 * found["flac_pcm_16.flac"]
    found["joined.ogg"] = 2 * found["ogg_vorbis.ogg"]
    found["joined.mp3"] = 2 * found["mp3_mpeg_layer_iii.mp3"]
    found["empty.wav"] = b""
    cut = {f"cut_{name}": data[: len(data) * 2 // 3] for name, data in found.items()}
    return found | cut | {f"stub_{name}": data[:50] for name, data in found.items()}
