"""Whether encoded audio is all there, asked before it is packed: cut audio is less than its text says."""

from __future__ import annotations

import io
import struct

import soundfile

from wenet_uio.audio.read import AudioError

NEAR_END = 0.98
"""Part of the samples that must be there; headers of mp3 are off by up to a hundredth."""
STREAMED = 0x7FFF0000
"""Bytes of samples from which a header only says that its length was not known when it was written."""


def require_whole(audio: bytes) -> None:
    """Refuse audio that ends before its header says; only what lies near the end is decoded.

    Ogg has no length in its header, and what libsndfile does not read is not looked at.

    Raises:
        AudioError: more than 2 % are missing.
    """
    if audio[:4] == b"RIFF":
        claimed, there = _wav_bytes(audio)
        if there < NEAR_END * claimed < NEAR_END * STREAMED:
            raise AudioError(f"cut short: its header says {claimed} bytes of samples, {there} are there")
        return
    try:
        file = soundfile.SoundFile(io.BytesIO(audio))
    except soundfile.LibsndfileError:
        return
    with file:
        try:
            file.seek(int(file.frames * NEAR_END))
            found = len(file.read(1))
        except soundfile.LibsndfileError as error:
            raise AudioError(f"cut short or damaged near its end: {error.error_string}") from None
        if not found:
            raise AudioError(f"cut short: its header says {file.frames} samples, and the last of them are missing")


def _wav_bytes(audio: bytes) -> tuple[int, int]:
    """Bytes of samples that a wav claims to have, and those that follow; 0 and 0 where it has none."""
    place = 12
    while place + 8 <= len(audio):
        name, length = struct.unpack_from("<4sI", audio, place)
        place += 8
        if name == b"data":
            return length, len(audio) - place
        place += length + length % 2
    return 0, 0
