import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.claimed_size import STREAMED, UNKNOWN, claim_of, is_whole
from wenet_uio.audio.decoders import AudioError, AvDecoder
from wenet_uio.audio.read import audio_info, read_audio

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


@pytest.mark.parametrize("kind", [*FORMATS, "FLAC", "OGG", "MP3", "CAF"])
def test_bytes_in_memory_are_read_without_a_file_on_a_disk(kind, monkeypatch):
    """Recordings of the clients of a server are written to no disk."""
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    buffer = io.BytesIO()
    soundfile.write(buffer, NOISE, 16000, format=kind)
    assert audio_info(buffer.getvalue()).num_samples == len(NOISE)
    assert len(read_audio(buffer.getvalue())[0]) == len(NOISE)


def flac_of_unknown_length(samples):
    """A FLAC as programs write it to a pipe: its header states no number of samples."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, format="FLAC")
    data = bytearray(buffer.getvalue())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    return bytes(data)


def test_audio_of_unknown_length_is_decoded_no_further_than_it_may_be_long(monkeypatch):
    decoded = []
    decode = AvDecoder._decode_frames

    def counted(decoder):
        for rate, samples in decode(decoder):
            decoded.append(samples.shape[1])
            yield rate, samples

    monkeypatch.setattr(AvDecoder, "_decode_frames", counted)
    for channels in (1, 2, 8):
        data = flac_of_unknown_length(np.zeros((160_000, channels), np.int16))
        assert audio_info(data).num_samples == 160_000
        assert audio_info(data, 10.0 * channels).num_samples == 160_000
        decoded.clear()
        info = audio_info(data, 3.0)
        assert info.num_samples * channels > 3 * 16000
        assert sum(decoded) * channels < 3 * 16000 + 8192 * channels


def test_the_length_of_a_file_is_remembered_only_if_all_of_it_was_counted(tmp_path):
    path = tmp_path / "a.aac"
    path.write_bytes(flac_of_unknown_length(np.zeros((160_000, 1), np.int16)))
    assert audio_info(str(path), 1.0).num_samples < 32_000
    assert audio_info(str(path)).num_samples == 160_000
