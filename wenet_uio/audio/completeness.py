"""Check that encoded audio is complete before it is packed: audio that is cut short does not match its text."""

from __future__ import annotations

import io
import struct

import soundfile

from wenet_uio.audio.read import AudioError, decodes

NEAR_END = 0.98
"""Share of the samples that must be present; headers of mp3 are wrong by up to one percent."""
STREAMED = 0x7FFF0000
"""Bytes of samples. A header that claims as many or more was written before the length was known."""


@decodes
def require_whole(audio: bytes) -> None:
    """Refuse audio that ends before the end that its header claims; only a block near the end is decoded.

    Ogg, which has no length in its header, and formats that libsndfile does not read are not checked.

    Raises:
        AudioError: more than 2 % of the samples are missing.
    """
    if audio[:4] == b"RIFF":
        claimed, there = _wav_bytes(audio)
        if there < NEAR_END * claimed < NEAR_END * STREAMED:
            raise AudioError(f"cut short: the header claims {claimed} bytes of samples, the file has {there}")
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
            raise AudioError(f"cut short: the header claims {file.frames} samples, the last of them are missing")


def _wav_bytes(audio: bytes) -> tuple[int, int]:
    """Bytes of samples that a wav claims, and bytes that it has; 0 and 0 without a data chunk."""
    place = 12
    while place + 8 <= len(audio):
        name, length = struct.unpack_from("<4sI", audio, place)
        place += 8
        if name == b"data":
            return length, len(audio) - place
        place += length + length % 2
    return 0, 0
