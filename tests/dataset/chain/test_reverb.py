"""Reverberation: the convolution, the rooms of a list, and the simulated rooms."""

import numpy as np
import pytest
import torch

from tests.dataset.chain.test_noise import noise_list, speech
from wenet_uio.config.augmentation import ReverbConf
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.noise import power
from wenet_uio.dataset.chain.reverb import SIZES, SOUND, convolved, shoebox, simulated_room
from wenet_uio.dataset.chain.waveform_augment import waveform_augmentations
from wenet_uio.dataset.types import Example


def operator(**keys):
    conf = DatasetConf(
        reverb_conf=ReverbConf(**{"prob": 1, "rooms": 2, "rt60": (0.05, 0.1), **keys})
    )
    (made,) = waveform_augmentations(conf, None, training=True)["reverb"]
    return made


@pytest.mark.parametrize("taps", [1, 2, 100, 4000])
@pytest.mark.parametrize("samples", [1, 99, 1000, 16001])
def test_the_convolution_equals_the_direct_one(taps, samples):
    random = np.random.default_rng(0)
    waveform, response = (random.normal(size=size).astype(np.float32) for size in (samples, taps))
    expected = np.convolve(waveform, response)[:samples]
    np.testing.assert_allclose(convolved(waveform, response), expected, atol=1e-3)


@pytest.mark.parametrize("samples", [1, 300, 16000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_length_and_power_stay(samples, dtype):
    given = speech(samples, dtype=dtype)
    found = operator()(given)
    assert found.waveform.shape == given.waveform.shape
    assert power(found.waveform) == pytest.approx(power(given.waveform.float()), rel=1e-3)
    if samples > 1:
        assert not torch.equal(found.waveform, given.waveform.float())


def test_silence_stays_silent():
    silence = Example("a", "", torch.zeros(4000), 16000, random=1)
    assert not operator()(silence).waveform.any()


def test_a_response_of_one_click_changes_nothing_however_late_it_is(tmp_path):
    click = np.zeros(3000)
    click[1234] = 0.5
    data_list, _ = noise_list(tmp_path, click)
    given = speech()
    found = operator(data_list=data_list)(given).waveform
    torch.testing.assert_close(found, given.waveform, atol=0.1, rtol=1e-4)


def test_an_echo_of_a_recorded_room_comes_at_its_time_from_the_first_channel_at_its_sample_rate(
    tmp_path,
):
    echo = np.zeros((800, 2))
    echo[100, 0], echo[500, 0] = 0.8, 0.4  # 50 ms apart at 8 kHz
    echo[:, 1] = 0.9
    data_list, _ = noise_list(tmp_path, echo, rate=8000)
    click = Example("a", "", torch.zeros(4000), 16000, random=1)
    click.waveform[0] = 1000.0
    heard = operator(data_list=data_list)(click).waveform.abs()
    assert int(heard[400:].argmax()) + 400 == 800
    assert float(heard[800] / heard[0]) == pytest.approx(0.5, abs=0.02)


def test_a_silent_response_leaves_the_utterance_as_it_is(tmp_path):
    data_list, _ = noise_list(tmp_path, np.zeros(1000))
    given = speech()
    assert operator(data_list=data_list)(given).waveform is given.waveform


def test_unreadable_responses_are_named(tmp_path):
    data_list, _ = noise_list(tmp_path, np.ones(100) / 2, np.ones(100) / 2)
    reverb = operator(data_list=data_list)
    (tmp_path / "noise0.wav").unlink()
    assert {noise.key for seed in range(9) for noise in reverb(speech(99, seed)).unreadable} == {
        "noise0"
    }


def test_the_direct_sound_of_a_room_comes_first_and_the_floor_at_the_time_of_its_way():
    size, speaker, microphone = (
        np.array([8.0, 7.0, 6.0]),
        np.array([3.0, 3.0, 1.0]),
        np.array([5.0, 3.0, 1.0]),
    )
    response = shoebox(size, speaker, microphone, 0.3, 48000)
    floor = round((np.sqrt(2**2 + 2**2) - 2) * 48000 / SOUND)
    assert response.argmax() == 0
    assert int(response[20 : floor + 50].argmin()) + 20 == pytest.approx(floor, abs=1)


@pytest.mark.parametrize("rt60", [0.1, 0.3, 0.5])
def test_the_sound_of_a_room_falls_by_60_db_in_its_reverberation_time(rt60):
    response = shoebox(
        np.array([5.0, 4.0, 3.0]), np.array([1.0, 1.2, 1.4]), np.array([3.8, 2.5, 1.7]), rt60, 16000
    )
    energy = np.cumsum(response[::-1].astype(float) ** 2)[::-1]
    left = 10 * np.log10(energy / energy[0] + 1e-12)
    early, late = (int(np.argmax(left < decibels)) for decibels in (-5, -25))
    assert 3 * (late - early) / 16000 == pytest.approx(rt60, rel=0.25)


def test_rooms_differ_and_a_room_is_the_same_in_every_process():
    first, second = (simulated_room(number, (0.05, 0.1), 16000) for number in (0, 1))
    assert len(first) != len(second)
    simulated_room.cache_clear()
    assert np.array_equal(simulated_room(0, (0.05, 0.1), 16000), first)
    assert len(SIZES) == 3


def test_a_probability_of_zero_changes_nothing():
    given = speech()
    assert operator(prob=0)(given) is given
