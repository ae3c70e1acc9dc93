"""The compiled functions: their bits in every build, and their numbers beside float64."""

from __future__ import annotations

import ctypes
import math
import subprocess

import pytest
import torch

from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain import compiled as builder
from wenet_uio.dataset.chain import compiled_fbank, features
from wenet_uio.dataset.chain.compiled import FLAGS, SOURCE, Compiled, compiled
from wenet_uio.dataset.chain.compiled_fbank import can_compute
from wenet_uio.dataset.chain.fbank import fbank, fbanks
from wenet_uio.dataset.chain.features import dithered
from wenet_uio.dataset.chain.mel import (
    EPSILON,
    fft_size_of,
    mel_matrix,
    window_and_shift,
    window_of,
)

CONFS = [
    (16000, FbankConf()),
    (16000, FbankConf(num_mel_bins=23, snip_edges=False)),
    (16000, FbankConf(num_mel_bins=3, frame_length=2, frame_shift=0.5)),
    (16000, FbankConf(num_mel_bins=128, remove_dc_offset=False, window_type="hamming")),
    (16000, FbankConf(num_mel_bins=40, frame_length=10, frame_shift=25)),
    (8000, FbankConf(num_mel_bins=1, high_freq=-400.0)),
    (11025, FbankConf(num_mel_bins=33, preemphasis_coefficient=0.0)),
    (24000, FbankConf(window_type="blackman")),
    (44100, FbankConf(window_type="rectangular", low_freq=100.0)),
    (48000, FbankConf(frame_length=60)),
]
"""Every size of the transform from 32 to 4096, and odd frames, shifts and bins."""


@pytest.fixture(scope="module", autouse=True)
def functions():
    compiled.cache_clear()
    if compiled().functions is None:
        pytest.skip(compiled().description)
    return compiled().functions


@pytest.fixture
def without_functions(monkeypatch):
    monkeypatch.setattr(compiled_fbank, "compiled", lambda: Compiled(None, "off"))
    monkeypatch.setattr(features, "compiled", lambda: Compiled(None, "off"))


def waveforms(rate):
    generator = torch.Generator().manual_seed(rate)
    noise = torch.randn(rate, generator=generator) * 1000
    return [
        noise,
        noise.to(torch.int16)[: rate // 2],
        noise.cumsum(0) * 0.1,
        torch.zeros(rate // 3),
        torch.full((rate // 7,), 12.0),
        noise[: rate // 40 + 1],
        noise[:1],
        noise[:0],
        torch.full((rate // 5,), -32768, dtype=torch.int16),
        noise * 1e-20,
    ]


@pytest.mark.third
@pytest.mark.parametrize(
    "flags",
    [
        ("-DLANES=4",),
        ("-DLANES=8",),
        ("-DLANES=16", "-O1"),
        ("-march=x86-64",),
        ("-march=haswell",),
        ("-march=armv8-a",),
    ],
    ids=" ".join,
)
def test_features_and_noise_have_the_same_bits_in_every_build(flags, tmp_path, monkeypatch):
    machine = {line.split(":")[0].strip(): line for line in builder._processor()}
    if flags[0] == "-march=haswell" and "avx2" not in machine.get("flags", ""):
        pytest.skip("this processor has no AVX2")
    path = tmp_path / "other.so"
    command = [*builder._compiler(), *FLAGS, *flags, str(SOURCE), "-o", str(path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("another architecture")

    expected = [fbanks(waveforms(rate), rate, conf) for rate, conf in CONFS]
    noises = dithered(waveforms(16000), range(10), 0.3)
    other = Compiled(ctypes.CDLL(str(path)), str(path))
    monkeypatch.setattr(compiled_fbank, "compiled", lambda: other)
    monkeypatch.setattr(features, "compiled", lambda: other)
    for (rate, conf), feats in zip(CONFS, expected, strict=True):
        assert all(map(torch.equal, fbanks(waveforms(rate), rate, conf), feats))
    assert all(map(torch.equal, dithered(waveforms(16000), range(10), 0.3), noises))


@pytest.mark.parametrize(("rate", "conf"), CONFS)
def test_features_have_the_same_bits_alone_and_in_every_place(rate, conf):
    alone = [fbank(waveform, rate, conf) for waveform in waveforms(rate)]
    together = fbanks([*waveforms(rate), *reversed(waveforms(rate))], rate, conf)
    assert all(map(torch.equal, together, [*alone, *reversed(alone)]))

    # Each lane, and the last frames: the waveform begins some frames later
    size, shift = window_and_shift(rate, conf)
    if conf.snip_edges:
        for frame in range(1, 18):
            later = fbank(waveforms(rate)[0][frame * shift :], rate, conf)
            assert torch.equal(later, alone[0][frame:])
            shorter = fbank(waveforms(rate)[0][: frame * shift + size], rate, conf)
            assert torch.equal(shorter, alone[0][: frame + 1])


def in_float64(waveform, rate, conf):
    """The formula of Kaldi, in float64, with snip_edges."""
    size, shift = window_and_shift(rate, conf)
    frames = waveform.double().unfold(0, size, shift)
    if conf.remove_dc_offset:
        frames = frames - frames.mean(1, keepdim=True)
    before = torch.cat([frames[:, :1], frames[:, :-1]], 1)
    frames = (frames - conf.preemphasis_coefficient * before) * window_of(conf.window_type, size)
    power = torch.fft.rfft(frames, fft_size_of(size)).abs().square()
    energies = power @ mel_matrix(rate, fft_size_of(size), conf)
    return energies.clamp(min=EPSILON).log()


@pytest.mark.parametrize(("rate", "conf"), [item for item in CONFS if item[1].snip_edges])
def test_features_are_as_close_to_float64_as_those_of_numpy(rate, conf, request):
    long_enough = [wave for wave in waveforms(rate) if len(wave) >= rate // 10]
    features = fbanks(long_enough, rate, conf)
    request.getfixturevalue("without_functions")
    of_numpy = fbanks(long_enough, rate, conf)
    for waveform, compiled_feats, numpy_feats in zip(long_enough, features, of_numpy, strict=True):
        expected = in_float64(waveform, rate, conf)
        error, numpy_error = ((x - expected).abs() for x in (compiled_feats, numpy_feats))
        assert error.mean() <= 2 * numpy_error.mean() + 1e-6
        assert error.max() <= 4 * numpy_error.max() + 1e-5


def test_the_logarithm_is_exact_to_two_units_in_the_last_place():
    """One bin, a rectangular window and an impulse make any energy."""
    conf = FbankConf(
        num_mel_bins=1,
        preemphasis_coefficient=0.0,
        remove_dc_offset=False,
        window_type="rectangular",
    )
    scales = torch.logspace(-3, 18, 4000, dtype=torch.float64).float()
    impulses = torch.zeros(len(scales), 400)
    impulses[:, 0] = scales
    energies = torch.cat(fbanks(list(impulses), 16000, conf))[:, 0].double()
    weight = float(mel_matrix(16000, 512, conf).sum())
    expected = (scales.double().square() * weight).clamp(min=EPSILON).log()
    assert (energies - expected).abs().max() < 2e-6 * 3
    assert ((energies - expected) / expected).abs().median() < 6e-8


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_numbers_beyond_float32_stay_in_their_frames(value, request):
    waveform = torch.randn(16000) * 100
    expected = fbank(waveform, 16000, FbankConf(num_mel_bins=200))
    waveform[8000] = value
    found = fbank(waveform, 16000, FbankConf(num_mel_bins=200))
    touched = torch.tensor([first * 160 <= 8000 < first * 160 + 400 for first in range(98)])
    assert torch.equal(found[~touched], expected[~touched])
    assert not found[touched].isfinite().any()
    request.getfixturevalue("without_functions")
    in_numpy = fbank(waveform, 16000, FbankConf(num_mel_bins=200))
    assert torch.equal(in_numpy[touched].isnan(), found[touched].isnan()) or value == 1e30


@pytest.mark.parametrize("kind", [torch.float64, torch.int32, torch.uint8])
def test_other_types_of_samples_count_as_float32(kind):
    waveform = (torch.randn(4000).abs() * 50).to(kind)
    assert torch.equal(
        fbank(waveform, 16000, FbankConf()), fbank(waveform.float(), 16000, FbankConf())
    )
    column = torch.stack([waveform, waveform], 1)[:, 1]
    assert not column.is_contiguous()
    for deviation in (0.0, 1.0):
        (noisy,) = dithered([column], [3], deviation)
        assert torch.equal(noisy, dithered([waveform.float()], [3], deviation)[0])
    assert torch.equal(fbank(column, 16000, FbankConf()), fbank(waveform, 16000, FbankConf()))


@pytest.mark.parametrize("deviation", [0.0, 0.1, 1.0, 5.0])
def test_dither_is_that_of_torch(deviation, request):
    waves = waveforms(16000)
    seeds = [0, 1, 2**62, 2**63 - 1, *range(6)]
    found = dithered(waves, seeds, deviation)
    request.getfixturevalue("without_functions")
    for ours, expected in zip(found, dithered(waves, seeds, deviation), strict=True):
        if deviation in (0.0, 1.0):
            assert torch.equal(ours, expected)
        else:  # torch may round once where two roundings are written
            torch.testing.assert_close(ours, expected, rtol=2e-7, atol=2e-6)


def test_transforms_that_are_too_small_are_computed_as_before(monkeypatch):
    conf = FbankConf(num_mel_bins=2, frame_length=1, frame_shift=1)
    assert not can_compute(16000, conf)
    features = fbank(torch.randn(1600) * 100, 16000, conf)
    assert features.shape == (100, 2)
    assert features.isfinite().all()


def test_the_memory_of_the_waveforms_does_not_change():
    waves = waveforms(16000)
    copies = [wave.clone() for wave in waves]
    fbanks(waves, 16000, FbankConf())
    dithered(waves, range(10), 1.0)
    assert all(map(torch.equal, waves, copies))
