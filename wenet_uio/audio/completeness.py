"""Check that encoded audio is complete before it is packed.

Audio that is cut short does not match its text.
"""

from __future__ import annotations

import io

import soundfile

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, decodes, read_signal
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

    Formats that libsndfile does not read are not checked.

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
        soundfile.SoundFile(io.BytesIO(audio)).close()
    except soundfile.LibsndfileError:
        return

    info = audio_info(audio)
    try:
        read_signal(audio, NEAR_END * info.num_samples / info.sample_rate)
    except AudioError as error:
        raise AudioError(
            f"cut short or damaged: the header claims {info.num_samples} samples; the last of them: "
            f"{error}"
        ) from None
