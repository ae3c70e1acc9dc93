import pytest
import torch
import torchaudio

from wenet_uio.dataset.chain.waveform import Resample, SpeedPerturb, _filters, resample
from wenet_uio.dataset.frames import resampled_length
from wenet_uio.dataset.types import Example


def tone(hertz, rate, seconds=1.0):
    return torch.sin(2 * torch.pi * hertz / rate * torch.arange(int(rate * seconds))) * 1000


def peak_hertz(waveform, rate):
    return int(torch.fft.rfft(waveform).abs().argmax()) * rate / len(waveform)


def example(waveform, rate, speed=1.0):
    return Example("a", "", waveform, rate, random=1, speed=speed)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_resampling_keeps_pitch_and_duration(rate):
    out = Resample(16000)(example(tone(440, rate), rate))
    assert out.sample_rate == 16000
    assert len(out.waveform) == 16000
    assert abs(peak_hertz(out.waveform, 16000) - 440) <= 1


@pytest.mark.parametrize(
    "rates", [(8000, 16000), (22050, 16000), (44100, 16000), (9, 10), (11, 10), (48000, 16000)]
)
@pytest.mark.parametrize("samples", [1, 100, 12345])
def test_resampling_equals_torchaudios(rates, samples):
    waveform = torch.randn(samples, generator=torch.Generator().manual_seed(samples)) * 1000
    expected = torchaudio.transforms.Resample(*rates)(waveform)
    torch.testing.assert_close(resample(waveform, *rates), expected, atol=5e-3, rtol=1e-5)


@pytest.mark.parametrize("speed", [0.9, 1.1])
def test_speed_moves_pitch_and_duration(speed):
    out = SpeedPerturb()(example(tone(440, 16000, 2.0), 16000, speed=speed))
    assert abs(len(out.waveform) - 32000 / speed) <= 1
    assert abs(peak_hertz(out.waveform, 16000) - 440 * speed) <= 1


def test_an_example_of_the_right_rate_and_speed_is_returned_unchanged():
    same = example(tone(440, 16000), 16000)
    assert Resample(16000)(same) is same
    assert SpeedPerturb()(same) is same


@pytest.mark.parametrize(
    ("source", "target"), [(8000, 16000), (44100, 16000), (9, 10), (11, 10), (22050, 16000)]
)
@pytest.mark.parametrize("samples", [1, 399, 7777])
def test_the_plan_predicts_the_number_of_resampled_samples(source, target, samples):
    assert len(resample(torch.ones(samples), source, target)) == resampled_length(
        samples, source, target
    )


@pytest.mark.parametrize("rate", [44101, 191999, 767999, 1001])
def test_an_odd_rate_needs_no_large_filters(rate):
    waveform = resample(tone(200, rate), rate, 16000)
    filters, _, source, target = _filters(rate, 16000)
    assert filters.numel() <= 2**23
    assert source / target == pytest.approx(rate / 16000, rel=1e-4)
    assert len(waveform) == resampled_length(rate, rate, 16000) == 16000
    assert abs(peak_hertz(waveform, 16000) - 200) <= 1


@pytest.mark.parametrize("rate", [15990, 15992, 15999, 16001, 16007, 16008, 16010])
@pytest.mark.parametrize("target", [16000, 8000])
def test_a_rate_near_to_the_other_is_resampled(rate, target):
    source = rate * target // 16000
    waveform = tone(200, source, 3.0)
    out = Resample(target)(example(waveform, source))
    assert len(out.waveform) == resampled_length(len(waveform), source, target)
    assert abs(peak_hertz(out.waveform, target) - 200) <= 1


@pytest.mark.parametrize("speed", [1.0004, 0.9996, 1.0006])
def test_a_speed_near_to_1_is_played(speed):
    out = SpeedPerturb()(example(tone(440, 16000, 2.0), 16000, speed=speed))
    assert abs(len(out.waveform) - 32000 / speed) <= 20
