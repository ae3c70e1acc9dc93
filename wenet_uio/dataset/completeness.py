"""Whether encoded audio is all there, asked before it is packed: cut audio is less than its text says."""

from __future__ import annotations

import io
import re

import soundfile

from wenet_uio.dataset.audio import AudioError

NEAR_END = 0.98
"""Part of the samples that must be there; headers of mp3 are off by up to a hundredth."""
STREAMED = 0x7FFF0000
"""Bytes of samples from which a header only says that its length was not known when it was written."""
CLAIMED = re.compile(r"^ *data *: (\d+) \(should be (\d+)\)", re.MULTILINE)
"""libsndfile's log of a wav whose data are not as long as its header says."""


def require_whole(audio: bytes) -> None:
    """Refuse audio that ends before its header says; only what lies near the end is decoded.

    Ogg has no length in its header, and what libsndfile does not read is not looked at.

    Raises:
        AudioError: more than 2 % are missing.
    """
    try:
        file = soundfile.SoundFile(io.BytesIO(audio))
    except soundfile.LibsndfileError:
        return
    with file:
        claimed = CLAIMED.search(file.extra_info)
        if claimed and int(claimed[1]) < STREAMED and int(claimed[2]) < NEAR_END * int(claimed[1]):
            raise AudioError(f"cut short: its header says {claimed[1]} bytes of samples, {claimed[2]} are there")
        try:
            file.seek(int(file.frames * NEAR_END))
            found = len(file.read(1))
        except soundfile.LibsndfileError as error:
            raise AudioError(f"cut short or damaged near its end: {error.error_string}") from None
        if not found:
            raise AudioError(f"cut short: its header says {file.frames} samples, and the last of them are missing")
