"""Check that encoded audio is complete before it is packed.

Audio that is cut short does not match its text.
"""

from __future__ import annotations

import io

import soundfile

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import decodes
from wenet_uio.audio.wav_header import NEAR_END, bytes_of_samples, is_whole

LENGTH_TOLERANCE = 0.1
"""Seconds by which the length of audio may differ from what a list or an index says."""


def why_past_the_end(start: float, end: float | None, seconds: float) -> str | None:
    """Say why a segment cannot be whole: it ends after the audio; None if it does not.

    Args:
        start: seconds.
        end: seconds; None is the end of the audio.
        seconds: of the audio between start and end.
    """
    if end is None or end - start - seconds <= LENGTH_TOLERANCE:
        return None
    return f"the segment ends at {end:.2f} s, the audio at {start + seconds:.2f} s"


@decodes
def require_whole(audio: bytes) -> None:
    """Refuse audio that ends before the end that its header claims.

    Only a block near the end is decoded.

    Ogg, which has no length in its header, and formats that libsndfile does not read are not
    checked.

    Raises:
        AudioError: more than 2 % of the samples are missing.
    """
    if audio[:4] == b"RIFF":
        claimed, present = bytes_of_samples(audio, len(audio))
        if not is_whole(claimed, present):
            raise AudioError(
                f"cut short: the header claims {claimed} bytes of samples, the file has {present}"
            )
        return

    try:
        file = soundfile.SoundFile(io.BytesIO(audio))
    except soundfile.LibsndfileError:
        return

    with file:
        try:
            file.seek(int(file.frames * NEAR_END))
            samples_near_end = len(file.read(1))
        except soundfile.LibsndfileError as error:
            raise AudioError(f"cut short or damaged near its end: {error.error_string}") from None
        if not samples_near_end:
            raise AudioError(
                f"cut short: the header claims {file.frames} samples, the last of them are missing"
            )
