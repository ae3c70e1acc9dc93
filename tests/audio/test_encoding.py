import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.encoding import MP3_RATES, OPUS_RATES, _zero_serial_number, encode_audio
from wenet_uio.audio.read import read_audio

TONE = 8000 * np.sin(np.arange(16000) / 10)[:, None].astype(np.float32)


@pytest.mark.parametrize("encoding", ["wav", "flac"])
def test_lossless_encodings_give_back_every_sample(encoding):
    stereo = np.hstack([TONE, -TONE]).round()
    audio = encode_audio(stereo, 16000, encoding)
    for channel in (0, 1):
        samples, rate = read_audio(audio, channel=channel)
        assert rate == 16000
        np.testing.assert_array_equal(samples, stereo[:, channel])


def test_samples_beyond_full_scale_are_clipped_and_do_not_wrap():
    loud = np.array([40000.0, 32768.0, -40000.0, 12.4], np.float32)[:, None]
    assert read_audio(encode_audio(loud, 16000, "wav"))[0].tolist() == [
        32767.0,
        32767.0,
        -32768.0,
        12.0,
    ]


@pytest.mark.parametrize("rate", MP3_RATES)
def test_mp3_keeps_each_of_its_rates_and_the_length(rate):
    waveform, stored_rate = read_audio(encode_audio(TONE, rate, "mp3"))
    assert stored_rate == rate
    assert len(waveform) >= len(TONE)


@pytest.mark.parametrize("rate", OPUS_RATES)
def test_opus_keeps_the_rate_the_length_and_the_signal(rate):
    waveform, found = read_audio(encode_audio(TONE, rate, "opus"))
    assert (len(waveform), found) == (16000, rate)
    assert np.corrcoef(waveform, TONE[:, 0])[0, 1] > 0.99


def test_opus_encoding_is_reproducible():
    assert encode_audio(TONE, 16000, "opus") == encode_audio(TONE, 16000, "opus")


def test_checksums_of_pages_equal_those_of_libogg():
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", 16000, 1, format="OGG", subtype="OPUS") as file:
        file.write(TONE / 32768)
    original = buffer.getvalue()
    changed = _zero_serial_number(original)
    serial = original[14:18]
    again = bytearray(changed)  # with the serial number that libsndfile drew
    assert changed != original
    first = 0
    checksums = []
    while first < len(again):
        segments = again[first + 26]
        last = first + 27 + segments + sum(again[first + 27 : first + 27 + segments])
        again[first + 14 : first + 18] = serial
        checksums.append((bytes(original[first + 22 : first + 26]), ogg_crc(again[first:last])))
        first = last
    assert len(checksums) >= 3
    assert all(found == expected for found, expected in checksums)


def ogg_crc(page):
    """Checksum of a page, computed bit by bit as in RFC 3533."""
    page = bytes(page[:22]) + bytes(4) + bytes(page[26:])
    state = 0
    for byte in page:
        state ^= byte << 24
        for _ in range(8):
            state = (state << 1 ^ (0x04C11DB7 if state >> 31 else 0)) & 0xFFFFFFFF
    return state.to_bytes(4, "little")


def test_a_rate_or_number_of_channels_that_an_encoding_cannot_store_is_refused():
    with pytest.raises(AudioError, match="opus stores 8000, 12000, .* Hz, not 44100"):
        encode_audio(TONE, 44100, "opus")
    with pytest.raises(AudioError, match="9 channels at 16000 Hz as flac"):
        encode_audio(np.repeat(TONE, 9, axis=1), 16000, "flac")
