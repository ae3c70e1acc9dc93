"""Check that encoded audio is complete before it is packed: audio that is cut short does not match its text."""

from __future__ import annotations

import io

import soundfile

from wenet_uio.audio.read import AudioError, decodes
from wenet_uio.audio.wav_header import NEAR_END, bytes_of_samples, is_whole


@decodes
def require_whole(audio: bytes) -> None:
    """Refuse audio that ends before the end that its header claims; only a block near the end is decoded.

    Ogg, which has no length in its header, and formats that libsndfile does not read are not checked.

    Raises:
        AudioError: more than 2 % of the samples are missing.
    """
    if audio[:4] == b"RIFF":
        claimed, there = bytes_of_samples(audio, len(audio))
        if not is_whole(claimed, there):
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
