import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.claimed_size import STREAMED, UNKNOWN, claim_of, is_whole
from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info

NOISE = np.random.default_rng(0).integers(-3000, 3000, 16000).astype(np.int16)
FORMATS = ["WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "NIST"]


def encoded(kind, samples=NOISE):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, format=kind, subtype="PCM_16")
    return buffer.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_whole_file_has_the_bytes_that_its_header_claims(kind, channels):
    data = encoded(kind, np.stack([NOISE] * channels, 1))
    claimed, present = claim_of(data, len(data))
    assert claimed >= 2 * channels * len(NOISE)
    assert abs(claimed - present) <= 128  # chunks after the samples
    assert audio_info(data).is_whole


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_file_that_is_cut_short_is_known_by_its_header(kind, share):
    data = encoded(kind)
    data = data[: int(share * len(data))]
    info = audio_info(data)
    assert not info.is_whole
    with pytest.raises(AudioError, match="cut short"):
        info.samples_between(0, None)
    assert info.samples_between(0, 0.05) == 800


@pytest.mark.parametrize("kind", FORMATS)
def test_a_head_of_any_length_is_read_or_unknown(kind):
    data = encoded(kind)
    whole = claim_of(data, len(data))
    assert {claim_of(data[:length], len(data)) for length in range(1200)} <= {whole, UNKNOWN}


@pytest.mark.parametrize("claimed", [STREAMED, 0xFFFFFFFF])
def test_a_header_from_before_the_length_was_known_claims_nothing(claimed):
    wav, au = bytearray(encoded("WAV")), bytearray(encoded("AU"))
    wav[40:44] = claimed.to_bytes(4, "little")
    au[8:12] = claimed.to_bytes(4, "big")
    for data in (bytes(wav), bytes(au)):
        assert claim_of(data, len(data)) == UNKNOWN
        assert is_whole(UNKNOWN)
