"""Band limit and codecs: the length stays, the band ends where it should, loud samples are
clipped.
"""

import numpy as np
import pytest
import torch

from wenet_uio.config.augmentation import CodecConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.waveform_augment import waveform_augmentations
from wenet_uio.dataset.types import Example


def operator(rate=16000, **keys):
    conf = DatasetConf(
        codec_conf=CodecConf(**{"prob": 1, **keys}), resample_conf={"resample_rate": rate}
    )
    (made,) = waveform_augmentations(conf, None, training=True)["codec"]
    return made


def tones(samples=8000, rate=16000, loudness=3000.0, dtype=torch.float32):
    """The sum of 500 Hz and 6000 Hz."""
    seconds = torch.arange(samples) / rate
    waveform = sum(torch.sin(2 * torch.pi * hertz * seconds) for hertz in (500, 6000)) * loudness
    return Example("tones", "", waveform.to(dtype), rate, random=5)


def loudness_at(example, hertz):
    spectrum = np.abs(
        np.fft.rfft(example.waveform.double().numpy() * np.hanning(len(example.waveform)))
    )
    return spectrum[round(hertz * len(example.waveform) / example.sample_rate)]


@pytest.mark.parametrize("codec", ["band_limit", "mulaw", "opus", "mp3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_the_length_and_the_low_band_stay(codec, dtype):
    given = tones(dtype=dtype)
    found = operator(codecs=[codec])(given)
    assert found.waveform.shape == given.waveform.shape
    assert loudness_at(found, 500) == pytest.approx(loudness_at(given, 500), rel=0.2)
    assert torch.equal(found.waveform, operator(codecs=[codec])(given).waveform)
    assert not torch.equal(found.waveform, given.waveform.float())


@pytest.mark.parametrize(
    "keys", [{"codecs": ["mulaw"]}, {"codecs": ["band_limit"], "band_rates": [8000]}]
)
def test_nothing_is_left_above_the_band(keys):
    given = tones()
    assert loudness_at(operator(**keys)(given), 6000) < 0.01 * loudness_at(given, 6000)


def test_a_band_as_wide_as_the_waveform_changes_nothing():
    given = tones()
    assert torch.equal(
        operator(codecs=["band_limit"], band_rates=[16000])(given).waveform, given.waveform
    )


@pytest.mark.parametrize("codec", ["mulaw", "opus", "mp3"])
@pytest.mark.parametrize("samples", [1, 2, 399])
def test_very_short_utterances_and_silence_pass(codec, samples):
    change = operator(codecs=[codec])
    assert len(change(tones(samples)).waveform) == samples
    silent = change(Example("a", "", torch.zeros(samples), 16000, random=1)).waveform
    assert len(silent) == samples
    assert silent.abs().max() < 40


def test_codecs_clip_what_is_louder_than_full_scale():
    given = Example("loud", "", torch.full((4000,), 50000.0), 8000, random=1)
    found = operator(8000, codecs=["mulaw"])(given).waveform
    assert 32000 < found.min() <= found.max() <= 32767


@pytest.mark.parametrize(("codec", "rate"), [("opus", 44100), ("mp3", 96000)])
def test_a_codec_without_the_sample_rate_of_the_training_is_refused_in_one_line(codec, rate):
    with pytest.raises(
        ValueError, match=rf"codec_conf.codecs: {codec} has [^\n]* not resample_rate {rate}; remove"
    ):
        operator(rate, codecs=[codec])


def test_telephone_speech_below_8_khz_is_encoded_at_its_own_rate():
    given = tones(4000, rate=6000)
    assert len(operator(6000, codecs=["mulaw"])(given).waveform) == 4000


def test_a_config_without_codecs_is_refused():
    with pytest.raises(ValueError, match="codecs"):
        CodecConf(codecs=[])


def test_a_probability_of_zero_changes_nothing():
    given = tones()
    assert operator(prob=0)(given) is given
