"""Samples in memory read like the wav file that holds them."""

import io

import numpy as np
import pytest
import soundfile

from wenet_uio.audio.decoders import AudioError, Samples
from wenet_uio.audio.read import audio_info, read_signal

RATE = 8000


def recording(dtype, channels):
    rng = np.random.default_rng(channels)
    noise = rng.uniform(-1, 1, (RATE, channels))
    return (noise * 32767).astype(np.int16) if dtype == "int16" else noise.astype(np.float32)


def as_wav(array):
    wav = io.BytesIO()
    subtype = "PCM_16" if array.dtype == np.int16 else "FLOAT"
    soundfile.write(wav, array, RATE, format="WAV", subtype=subtype)
    return wav.getvalue()


@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("channel", [0, 1, "mix"])
@pytest.mark.parametrize("segment", [(0.0, None), (0.25, None), (0.1, 0.35), (0.9, 5.0)])
@pytest.mark.parametrize("keep_int16", [False, True])
def test_every_segment_of_every_channel_is_the_same_in_bits(
    dtype, channels, channel, segment, keep_int16
):
    array = recording(dtype, channels)
    before = array.copy()
    samples = Samples(array, RATE)
    assert audio_info(samples) == audio_info(as_wav(array))
    if channel == 1 and channels == 1:
        with pytest.raises(AudioError, match="channel 1"):
            read_signal(samples, *segment, channel)
        return

    options = {"channel": channel, "keep_int16": keep_int16}
    found, found_rate = read_signal(samples, *segment, **options)
    expected, rate = read_signal(as_wav(array), *segment, **options)
    assert (found.dtype, found_rate) == (expected.dtype, rate)
    assert np.array_equal(found, expected)
    assert np.array_equal(array, before)  # the caller's samples stay


@pytest.mark.parametrize(
    ("array", "rate", "message"),
    [
        (np.full((9, 1), np.nan, np.float32), RATE, "not"),
        (np.full((9, 1), 1e9, np.float32), RATE, "full scale"),
        (np.zeros((9, 1), np.int16), 3, "sample rate 3 Hz"),
        (np.zeros((0, 1), np.int16), RATE, "no samples"),
    ],
)
def test_samples_that_are_no_sound_are_refused(array, rate, message):
    with pytest.raises(AudioError, match=message):
        read_signal(Samples(array, rate))
