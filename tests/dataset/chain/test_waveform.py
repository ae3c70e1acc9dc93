import numpy as np
import pytest
import torch
import torchaudio

from wenet_uio.config.augmentation import (
    CodecConf,
    QuietConf,
    ShiftConf,
    TrimConf,
    WhiteNoiseConf,
)
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain import waveform as waveform_module
from wenet_uio.dataset.chain.noise import WhiteNoise
from wenet_uio.dataset.chain.waveform import (
    ChangeQuiet,
    Resample,
    Shift,
    SpeedPerturb,
    TrimSilence,
    _filters,
    moved,
    resample,
    speech_bounds,
)
from wenet_uio.dataset.chain.waveform_augment import waveform_augmentations
from wenet_uio.dataset.lengths import resampled_length
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


def example_of(waveform, seed=0):
    return Example("speech", "", waveform, 16000, random=seed << 40)


def librosa_bounds(samples, top_db):
    """The rule of librosa.effects.trim (0.10), with its defaults, for samples from -1 to 1."""
    padded = np.pad(samples.astype(np.float64), 1024)
    frames = [padded[start : start + 2048] for start in range(0, len(padded) - 2047, 512)]
    powers = np.array([np.mean(frame**2) for frame in frames])
    decibels = 10 * np.log10(np.maximum(1e-10, powers))
    decibels -= 10 * np.log10(max(1e-10, powers.max()))
    loud = np.flatnonzero(decibels > -top_db)
    return loud[0] * 512, min(len(samples), (loud[-1] + 1) * 512)


@pytest.mark.parametrize("top_db", [20, 60])
@pytest.mark.parametrize("length", [1, 511, 512, 2048, 9999, 40000])
def test_silence_ends_where_librosa_says(top_db, length):
    random = np.random.default_rng(length)
    level = np.where(np.arange(length) % 9000 < 4000, 1e-5, 0.3)
    samples = (random.normal(size=length) * level).astype(np.float32)
    waveform = torch.from_numpy(samples) * 32768
    assert speech_bounds(waveform, top_db) == librosa_bounds(samples, top_db)


def test_speech_between_zeros_is_cut_out_and_zeros_alone_are_kept():
    speech = torch.randn(16000, generator=torch.Generator().manual_seed(0)) * 3000
    silence = torch.zeros(16000)
    trimmed = TrimSilence(TrimConf())(example_of(torch.cat([silence, speech, silence]))).waveform
    assert len(speech) <= len(trimmed) < len(speech) + 3 * 2048
    assert len(TrimSilence(TrimConf())(example_of(silence)).waveform) == 16000
    shorts = (speech.to(torch.int16), torch.cat([speech, silence]).to(torch.int16))
    assert [TrimSilence(TrimConf())(example_of(short)).waveform.dtype for short in shorts] == [
        torch.int16
    ] * 2


def nemo_shift(samples, milliseconds, rate):
    """ShiftPerturbation of NeMo."""
    samples = samples.copy()
    if abs(milliseconds) / 1000 > len(samples) / rate:
        return samples
    shift = int(milliseconds * rate // 1000)
    if shift < 0:
        samples[-shift:] = samples[:shift].copy()
        samples[:-shift] = 0
    elif shift > 0:
        samples[:-shift] = samples[shift:].copy()
        samples[-shift:] = 0
    return samples


@pytest.mark.parametrize("milliseconds", [-2000.0, -62.5, -5.3, 0.0, 0.04, 5.3, 62.5, 63.0])
def test_an_utterance_is_moved_as_by_nemo(milliseconds):
    waveform = torch.arange(1.0, 1001.0)  # 62.5 ms at 16 kHz
    shifted = Shift(ShiftConf(milliseconds=(milliseconds, milliseconds)))(example_of(waveform))
    expected = nemo_shift(waveform.numpy(), milliseconds, 16000)
    assert shifted.waveform.tolist() == expected.tolist()


def test_times_of_a_shift_are_drawn_between_the_bounds():
    waveform, operator = torch.arange(1.0, 16001.0), Shift(ShiftConf(milliseconds=(-100.0, 50.0)))
    possible = {tuple(moved(waveform, shift)[8000:8001].tolist()) for shift in range(-1600, 801)}
    drawn = {
        tuple(operator(example_of(waveform, n)).waveform[8000:8001].tolist()) for n in range(99)
    }
    assert len(drawn) > 90
    assert drawn <= possible
    assert operator(example_of(waveform, 3)).waveform.equal(
        operator(example_of(waveform, 3)).waveform
    )


def test_white_noise_has_a_level_of_full_scale_also_on_silence():
    operator = WhiteNoise(WhiteNoiseConf(level=(-60, -40)))
    levels = []
    for seed in range(60):
        noise = operator(example_of(torch.zeros(16000), seed)).waveform / 32768
        levels.append(20 * float(noise.square().mean().sqrt().log10()))
    assert max(abs(level - round(level)) for level in levels) < 0.25
    assert {round(level) for level in levels} <= set(range(-60, -39))
    assert len({round(level) for level in levels}) > 15
    loud = torch.full((16000,), 1000.0)
    quiet = WhiteNoise(WhiteNoiseConf(prob=0.0))(example_of(loud)).waveform
    assert quiet.equal(loud)


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


def test_the_filters_of_many_odd_rates_take_bounded_memory_and_change_no_result(monkeypatch):
    monkeypatch.setattr(waveform_module, "MOST_KEPT_BYTES", 1 << 22)
    monkeypatch.setattr(waveform_module, "_kept_filters", {})
    common = resample(tone(200, 8000), 8000, 16000)
    for rate in range(16_011, 16_411, 40):
        once = resample(tone(200, rate), rate, 16000)
        assert torch.equal(resample(tone(200, rate), rate, 16000), once)
        assert torch.equal(resample(tone(200, 8000), 8000, 16000), common)
        kept = waveform_module._kept_filters
        assert sum(filters.filters.nbytes for filters in kept.values()) <= 1 << 22
        assert (8000, 16000) in kept  # it was used between all others


def changed_quiet(waveform: torch.Tensor, seed: int, **keys) -> torch.Tensor:
    operator = ChangeQuiet(QuietConf(**{"prob": 1.0, **keys}))
    changed = operator(Example("u", "one", waveform, 8000, seed)).waveform
    assert changed is not None
    return changed


def ends_of_tone(waveform: torch.Tensor) -> tuple[int, int]:
    """First sample of the loud tone, and the one after its last."""
    loud = (waveform.abs() > 1000).nonzero().flatten()
    return int(loud[0]), int(loud[-1]) + 1


LOUD_TONE = 10000 * torch.sin(0.3 * torch.arange(8000))


@pytest.mark.parametrize("quiet", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("kind", [torch.float32, torch.int16])
def test_quiet_is_cut_or_added_to_drawn_lengths_and_the_words_stay_whole(quiet, kind):
    edge = torch.zeros(round(quiet * 8000))
    waveform = torch.cat((edge, LOUD_TONE, edge)).to(kind)
    seconds, levels, digital = [], [], 0
    for seed in range(200):
        changed = changed_quiet(waveform, seed, seconds=[0.1, 0.5], level=[-60, -50])
        first, last = ends_of_tone(changed)
        assert last - first == pytest.approx(8000, abs=20)
        digital += not changed[: first - 10].any()
        for part in (changed[: first - 10], changed[last + 10 :]):
            if part.any():
                levels.append(20 * np.log10(float(part.std()) / 32768))
        seconds += [first / 8000, (len(changed) - last) / 8000]
    # An edge of speech is known to half a frame of 2048 samples.
    assert 0.09 < min(seconds) < 0.25 < 0.48 < max(seconds) < 0.51 + 0.16
    assert -61.5 < min(levels) < -58 < -52 < max(levels) < -49
    assert 25 < digital < 75


def test_draws_of_quiet_depend_on_the_seed_alone_and_some_utterances_stay():
    first, again, other = (changed_quiet(LOUD_TONE, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert len(first) != len(other)
    same = [changed_quiet(LOUD_TONE, seed, prob=0.7) is LOUD_TONE for seed in range(1000)]
    assert sum(same) == pytest.approx(300, abs=60)


@pytest.mark.parametrize("waveform", [torch.zeros(300), torch.zeros(9000), torch.ones(1)])
def test_quiet_around_silence_and_single_samples_is_no_error(waveform):
    for seed in range(20):
        assert torch.isfinite(changed_quiet(waveform, seed)).all()
