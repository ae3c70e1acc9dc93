"""Check that encoded audio is complete before it is packed.

Audio that is cut short does not match its text.
"""

from __future__ import annotations

import io

import soundfile

from wenet_uio.audio.claimed_size import NEAR_END, UNKNOWN, claim_of, is_whole
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, decodes, read_signal


@decodes
def require_whole(audio: bytes) -> None:
    """Refuse audio that ends before the end that its header claims.

    Only a block near the end is decoded.

    Formats that libsndfile does not read are not checked.

    Raises:
        AudioError: more than 2 % of the samples are missing.
    """
    claim = claim_of(audio, len(audio))
    if not is_whole(claim):
        raise AudioError(
            f"cut short: the header claims {claim[0]} bytes of samples, the file has {claim[1]}"
        )
    # A RIFF that claims nothing was written before its length was known: no end to compare with.
    if claim != UNKNOWN or audio[:4] == b"RIFF":
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
