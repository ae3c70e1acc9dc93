"""Noise and gain: the ratio, the length, and the edges."""

from random import Random

import numpy as np
import pytest
import soundfile
import torch

from wenet_uio.config.augmentation import GainConf, NoiseConf, OverlapConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain import recordings
from wenet_uio.dataset.chain.noise import (
    EXPONENTS,
    LOWEST,
    TABLE,
    AddNoise,
    Gain,
    coloured_noise,
    mixed,
    power,
)
from wenet_uio.dataset.chain.recordings import Recordings, repeated
from wenet_uio.dataset.chain.waveform_augment import waveform_augmentations
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.types import Example
from wenet_uio.prepare.list_making import make_raw_list, make_shard_list


def speech(samples=16000, seed=7, dtype=torch.float32, loudness=3000.0):
    waveform = torch.randn(samples, generator=torch.Generator().manual_seed(seed)) * loudness
    return Example("speech", "", waveform.to(dtype), 16000, random=seed << 40)


def noise_list(tmp_path, *recordings, rate=16000, name="noise"):
    """A raw list of recordings: arrays (samples,) or (samples, channels), -1 to 1."""
    lines = []
    for number, samples in enumerate(recordings):
        path = tmp_path / f"{name}{number}.wav"
        soundfile.write(path, samples, rate, subtype="PCM_16")
        lines.append(RawLine(path.stem, str(path), ""))
    made = str(tmp_path / f"{name}.list")
    assert make_raw_list(lines, made) == []
    return made, lines


def hiss(samples, seed=0, channels=None):
    shape = samples if channels is None else (samples, channels)
    return np.random.default_rng(seed).normal(0, 0.05, shape)


def operator(conf, corpus=None):
    (made,) = waveform_augmentations(DatasetConf(noise_conf=conf), corpus, training=True)["noise"]
    return made


def ratio_of(before, after):
    """Signal to noise in dB."""
    noise = after.waveform - before.waveform.float()
    return 10 * np.log10(power(before.waveform.float()) / power(noise))


@pytest.mark.parametrize("seconds", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("snr", [-5.0, 0.0, 15.0])
def test_the_ratio_is_reached_with_noise_shorter_and_longer_than_the_utterance(
    tmp_path, seconds, snr
):
    data_list, _ = noise_list(tmp_path, hiss(int(seconds * 16000)))
    add = operator(NoiseConf(data_list=data_list, prob=1, snr=(snr, snr)))
    for dtype in (torch.float32, torch.int16):
        given = speech(dtype=dtype)
        found = add(given)
        assert found.waveform.shape == given.waveform.shape
        assert found.waveform.dtype == torch.float32
        assert ratio_of(given, found) == pytest.approx(snr, abs=0.1)


@pytest.mark.parametrize("kind", ["white", "pink", "brown"])
def test_coloured_noise_needs_no_list(kind):
    given = speech()
    found = operator(NoiseConf(made=[kind], prob=1, snr=(3, 3)))(given)
    assert ratio_of(given, found) == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(("kind", "decibels"), [("white", 0.0), ("pink", 3.01), ("brown", 6.02)])
def test_the_power_of_a_colour_falls_by_its_decibels_an_octave(kind, decibels):
    spectrum = np.abs(np.fft.rfft(coloured_noise(EXPONENTS[kind]).double().numpy())) ** 2
    hertz = np.arange(len(spectrum)) * 16000 / TABLE
    octaves = [spectrum[(hertz >= low) & (hertz < 2 * low)].mean() for low in (500, 1000, 2000)]
    assert np.diff(10 * np.log10(octaves)) == pytest.approx([-decibels] * 2, abs=0.3)
    assert spectrum[hertz < 0.99 * LOWEST * 16000].max() < 1e-3 * spectrum.max()


@pytest.mark.parametrize("rate", [8000, 44100])
def test_noise_of_another_sample_rate_is_resampled(tmp_path, rate):
    tone = 0.3 * np.sin(2 * np.pi * 440 / rate * np.arange(2 * rate))
    data_list, _ = noise_list(tmp_path, tone, rate=rate)
    given = speech(16001)
    noise = operator(NoiseConf(data_list=data_list, prob=1))(given).waveform - given.waveform
    peak = int(torch.fft.rfft(noise).abs().argmax()) * 16000 / 16001
    assert peak == pytest.approx(440, abs=1)


def test_noise_of_two_channels_is_the_mean_of_both(tmp_path):
    stereo = hiss(8000, channels=2)
    conf = {"prob": 1, "snr": (5, 5)}
    of_both, _ = noise_list(tmp_path, stereo, name="stereo")
    of_mean, _ = noise_list(tmp_path, stereo.mean(1), name="mean")
    found = [
        operator(NoiseConf(data_list=each, **conf))(speech(4000)).waveform
        for each in (of_both, of_mean)
    ]
    torch.testing.assert_close(found[0], found[1], atol=2, rtol=0.01)


def test_silence_and_silent_noise_stay_as_they_are(tmp_path):
    data_list, _ = noise_list(tmp_path, np.zeros(16000))
    given = speech()
    assert operator(NoiseConf(data_list=data_list, prob=1))(given).waveform is given.waveform
    silence = Example("silence", "", torch.zeros(16000), 16000, random=3)
    assert not operator(NoiseConf(made=["white"], prob=1))(silence).waveform.any()


@pytest.mark.parametrize("samples", [1, 2, 399])
def test_a_very_short_utterance_gets_noise(samples):
    given = speech(samples)
    found = operator(NoiseConf(made=["white"], prob=1, snr=(0, 0)))(given)
    assert len(found.waveform) == samples
    assert ratio_of(given, found) == pytest.approx(0, abs=0.1)


def test_noise_is_not_clipped_and_gain_is():
    loud = speech(loudness=20000.0)
    noised = operator(NoiseConf(made=["white"], prob=1, snr=(0, 0)))(loud)
    assert noised.waveform.abs().max() > 40000
    found = Gain(GainConf(gain=(20, 20)))(loud).waveform
    assert (float(found.min()), float(found.max())) == (-32768.0, 32767.0)
    quiet = Gain(GainConf(gain=(-20, -20)))(loud).waveform
    torch.testing.assert_close(quiet, loud.waveform / 10)


def test_gain_changes_stored_samples_of_16_bits():
    given = speech(dtype=torch.int16)
    found = Gain(GainConf(gain=(-6, -6)))(given).waveform
    torch.testing.assert_close(found, given.waveform * 10 ** (-6 / 20))


def test_a_probability_of_zero_equals_no_noise_and_one_half_is_every_other_utterance():
    conf = NoiseConf(made=["white"], prob=0)
    given = [speech(100, seed) for seed in range(200)]
    assert all(
        AddNoise(conf, ())(each) is each and Gain(GainConf(prob=0))(each) is each for each in given
    )
    half = operator(NoiseConf(made=["white"], prob=0.5))
    assert 70 < sum(half(each) is not each for each in given) < 130


def test_the_ratio_and_the_kind_differ_between_utterances_and_are_repeated_for_the_same_seed(
    tmp_path,
):
    data_list, _ = noise_list(tmp_path, hiss(20000), hiss(30000, 1))
    add = operator(NoiseConf(data_list=data_list, made=["pink"], prob=1, snr=(0, 30)))
    given = [speech(4000, seed) for seed in range(8)]
    ratios = [ratio_of(each, add(each)) for each in given]
    assert min(ratios) >= -0.1
    assert max(ratios) <= 30.1
    assert max(ratios) - min(ratios) > 5
    assert all(torch.equal(add(each).waveform, add(each).waveform) for each in given)


def test_babble_is_the_sum_of_other_utterances(make_lists):
    corpus = open_list(make_lists(12)["raw"], "raw")
    add = operator(NoiseConf(made=["babble"], prob=1, snr=(5, 5), talkers=(3, 3)), corpus)
    given = speech(30000)
    assert ratio_of(given, add(given)) == pytest.approx(5, abs=0.1)


def test_babble_of_a_single_utterance_leaves_it_as_it_is(make_lists):
    corpus = open_list(make_lists(1)["raw"], "raw")
    add = operator(NoiseConf(made=["babble"], prob=1), corpus)
    given = Example("utt0000", "", speech().waveform, 16000, random=5)
    assert add(given) is given


def test_the_order_and_the_type_of_a_noise_list_have_no_effect(tmp_path):
    data_list, lines = noise_list(tmp_path, *(hiss(9000, seed) for seed in range(9)))
    turned, shard = str(tmp_path / "turned.list"), str(tmp_path / "shard.list")
    make_raw_list(lines[::-1], turned)
    make_shard_list(lines[3:] + lines[:3], tmp_path / "shards", shard)
    kinds = ((data_list, "raw"), (turned, "raw"), (shard, "shard"))
    adds = [operator(NoiseConf(data_list=name, data_type=kind, prob=1)) for name, kind in kinds]
    for seed in range(10):
        first, *others = [add(speech(3000, seed)).waveform for add in adds]
        assert all(torch.equal(first, other) for other in others)


def test_a_noise_that_cannot_be_read_is_named_and_another_is_drawn(tmp_path):
    data_list, _ = noise_list(tmp_path, hiss(9000), hiss(9000, 1))
    add = operator(NoiseConf(data_list=data_list, prob=1, snr=(5, 5)))
    (tmp_path / "noise0.wav").write_bytes(b"no audio")
    found = [add(speech(3000, seed)) for seed in range(20)]
    assert all(
        ratio_of(speech(3000, seed), each) == pytest.approx(5, abs=0.1)
        for seed, each in enumerate(found)
    )
    unreadable = [noise for each in found for noise in each.unreadable]
    assert {(noise.key, noise.reason) for noise in unreadable} == {("noise0", "unreadable_noise")}
    assert "noise0.wav" in unreadable[0].detail
    (tmp_path / "noise1.wav").unlink()
    # The first one keeps what it has decoded
    fresh = operator(NoiseConf(data_list=data_list, prob=1))
    with pytest.raises(ValueError, match="noise.list: none of 20 recordings can be read; .*wav"):
        fresh(speech())


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_noise_list_is_an_error_of_one_line(tmp_path, content):
    path = tmp_path / "empty.list"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"dataset_conf.noise_conf.data_list: .*empty.list[^\n]*$"):
        operator(NoiseConf(data_list=str(path)))


def test_a_missing_noise_list_is_an_error_of_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"dataset_conf.noise_conf.data_list: .*none.list[^\n]*$"):
        operator(NoiseConf(data_list=str(tmp_path / "none.list")))


def test_recordings_without_a_usable_header_are_left_out_and_named(tmp_path, caplog):
    _, lines = noise_list(tmp_path, hiss(9000), hiss(9000, 1))
    (tmp_path / "noise0.wav").write_bytes(b"no audio")
    damaged = tmp_path / "damaged.list"
    damaged.write_text("".join(line.to_json() + "\n" for line in lines))
    operator(NoiseConf(data_list=str(damaged), prob=1))
    assert "damaged.list: 1 of 2 recordings are left out: noise0: " in caplog.text


def test_noise_without_a_source_and_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match=r"give data_list, or made: \[babble, pink\]"):
        NoiseConf()
    with pytest.raises(ValueError, match="the lower bound 20 comes first, then the upper bound 5"):
        NoiseConf(made=["pink"], snr=(20, 5))


def test_evaluation_has_no_noise():
    conf = DatasetConf(noise_conf=NoiseConf(made=["pink"]), gain_conf=GainConf())
    assert not any(waveform_augmentations(conf, None, training=False).values())


def test_babble_needs_the_training_data():
    with pytest.raises(
        ValueError, match="noise_conf.made: babble: the chain was built without the training data"
    ):
        operator(NoiseConf(made=["babble"]))


def test_an_excerpt_of_a_longer_recording_begins_at_a_drawn_place(tmp_path):
    data_list, _ = noise_list(tmp_path, np.linspace(0, 0.5, 48000))
    ramp = Recordings(open_list(data_list, "raw"), 16000, "mix", by_key=True)
    starts = [float(ramp.excerpt(1000, Random(seed)).waveform[0]) for seed in range(20)]
    assert min(starts) < 4000
    assert max(starts) > 12000


@pytest.mark.parametrize("rate", [16000, 8000])
def test_recordings_of_a_long_list_are_read_in_excerpts_and_not_kept(tmp_path, monkeypatch, rate):
    data_list, _ = noise_list(tmp_path, np.linspace(0, 0.5, 2 * rate), rate=rate)
    corpus = open_list(data_list, "raw")
    kept = Recordings(corpus, 16000, "mix", by_key=True)
    monkeypatch.setattr(recordings, "KEPT_BYTES", 0)
    read = Recordings(corpus, 16000, "mix", by_key=True)
    for seed in range(20):
        found, expected = (each.excerpt(1000, Random(seed)).waveform for each in (read, kept))
        # 10 ms are 82
        torch.testing.assert_close(found[100:-100], expected[100:-100], atol=100, rtol=0)


def test_repeating_begins_anywhere_and_wraps():
    assert repeated(torch.arange(3), 2, 7).tolist() == [2, 0, 1, 2, 0, 1, 2]
    assert repeated(torch.arange(9), 2, 3).tolist() == [2, 3, 4]


def test_mixing_with_silence_changes_nothing():
    waveform = speech().waveform
    assert mixed(waveform, torch.zeros(16000), 0) is waveform


def overlapped(corpus, ratio):
    conf = DatasetConf(overlap_conf=OverlapConf(prob=1, ratio=(ratio, ratio)))
    (made,) = waveform_augmentations(conf, corpus, training=True)["overlap"]
    return made


def test_a_second_utterance_is_heard_from_a_drawn_place_on_at_the_drawn_ratio(make_lists):
    overlap = overlapped(open_list(make_lists(12)["raw"], "raw"), 10)
    starts = []
    for seed in range(10):
        given = speech(40000, seed)
        found = overlap(given)
        assert (found.text, len(found.waveform)) == (given.text, 40000)
        (heard,) = (found.waveform - given.waveform).nonzero(as_tuple=True)
        starts.append(int(heard[0]))
        second = (found.waveform - given.waveform)[heard[0] : heard[-1] + 1]
        if len(second) > 100:
            assert 10 * np.log10(power(given.waveform) / power(second)) == pytest.approx(
                10, abs=0.1
            )
    assert max(starts) - min(starts) > 10000


def test_overlap_keeps_silence_and_an_utterance_without_another(make_lists):
    corpus = open_list(make_lists(1)["raw"], "raw")
    silence = Example("silence", "", torch.zeros(16000), 16000, random=3)
    assert not overlapped(corpus, 0)(silence).waveform.any()
    alone = Example("utt0000", "", speech().waveform, 16000, random=5)
    assert overlapped(corpus, 0)(alone).waveform is alone.waveform
