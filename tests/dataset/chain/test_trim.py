"""Trimming and shifting, against the rules of librosa and NeMo written out."""

import numpy as np
import pytest
import torch

from wenet_uio.config.augmentation import ShiftConf, TrimConf, WhiteNoiseConf
from wenet_uio.dataset.chain.noise import WhiteNoise
from wenet_uio.dataset.chain.trim import Shift, TrimSilence, moved, speech_bounds
from wenet_uio.dataset.types import Example


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
