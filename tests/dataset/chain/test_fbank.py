import math
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torchaudio.compliance import kaldi

from wenet_uio.config.dataset import FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.chain import fbank as module
from wenet_uio.dataset.chain.compiled import SWITCH, compiled
from wenet_uio.dataset.chain.fbank import (
    LARGEST_KEPT,
    fbank,
    fbanks,
    log_mel_spectrogram,
    mfcc,
    mfccs,
    scratch,
)


@pytest.fixture(params=["compiled", "numpy"])
def way(request, monkeypatch):
    """Compute fbank features by the compiled functions, or without them."""
    monkeypatch.setenv(SWITCH, "1" if request.param == "compiled" else "0")
    compiled.cache_clear()
    if request.param == "compiled" and compiled().functions is None:
        pytest.skip(compiled().description)
    yield request.param
    compiled.cache_clear()


def speech_like(samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples, generator=generator)
    return noise.cumsum(0).sub_(noise.cumsum(0).mean()).mul_(30) + noise * 200 + 40


@pytest.mark.parametrize("window_type", ["povey", "hamming", "hanning", "rectangular", "blackman"])
@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize("rate", [16000, 8000])
def test_fbank_equals_kaldis(window_type, snip_edges, rate, way):
    conf = FbankConf(num_mel_bins=40, window_type=window_type, snip_edges=snip_edges)
    waveform = speech_like(rate * 7)
    expected = kaldi.fbank(
        waveform[None],
        num_mel_bins=40,
        window_type=window_type,
        snip_edges=snip_edges,
        sample_frequency=rate,
        energy_floor=0.0,
    )
    torch.testing.assert_close(fbank(waveform, rate, conf), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("num_mel_bins", bins) for bins in (23, 80)),
        *(
            ("frame_length", 20),
            ("frame_shift", 12.5),
            ("low_freq", 80.0),
            ("high_freq", 7000.0),
            ("high_freq", -400.0),
        ),
        *(("preemphasis_coefficient", 0.0), ("remove_dc_offset", False)),
    ],
)
def test_every_option_has_the_meaning_of_kaldi(option, value, way):
    waveform = speech_like(16000)
    expected = kaldi.fbank(waveform[None], energy_floor=0.0, **{"num_mel_bins": 40, option: value})
    found = fbank(waveform, 16000, FbankConf(**{"num_mel_bins": 40, option: value}))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


def test_mfcc_equals_kaldis(way):
    waveform = speech_like(16000 * 3)
    expected = kaldi.mfcc(waveform[None], num_mel_bins=40, num_ceps=13, energy_floor=0.0)
    torch.testing.assert_close(
        mfcc(waveform, 16000, MfccConf(num_ceps=13)), expected, atol=3e-3, rtol=0
    )


def test_a_long_waveform_in_chunks_equals_its_parts(way):
    conf = FbankConf(num_mel_bins=80)
    waveform = speech_like(16000 * 12)
    whole = fbank(waveform, 16000, conf)
    torch.testing.assert_close(
        whole[700:800], fbank(waveform[700 * 160 :], 16000, conf)[:100], atol=1e-4, rtol=0
    )


LENGTHS = (16000, 1, 399, 400, 559, 560, 161 * 400, 23456, 600_000, 0, 8000)
"""Samples: empty, below a window, one frame, a chunk and more, more than are joined."""


@pytest.mark.third
@pytest.mark.parametrize("rate", [16000, 48000])
@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize("bins", [23, 40, 80])
def test_features_of_a_waveform_have_the_same_bits_in_every_batch(bins, snip_edges, rate, way):
    waveforms = [speech_like(samples, seed=samples) for samples in LENGTHS]
    conf = FbankConf(num_mel_bins=bins, snip_edges=snip_edges)
    mfcc_conf = MfccConf(num_mel_bins=bins, num_ceps=13, snip_edges=snip_edges)
    alone = [fbank(waveform, rate, conf) for waveform in waveforms]
    cepstra = [mfcc(waveform, rate, mfcc_conf) for waveform in waveforms]

    numbers = range(len(waveforms))
    for order in (numbers, reversed(numbers), [3] * 3, [6, 3], [3, 6], [7, 7, 3]):
        places = [*order]
        batch = [waveforms[place] for place in places]
        for place, found in zip(places, fbanks(batch, rate, conf), strict=True):
            assert torch.equal(found, alone[place])
        for place, found in zip(places, mfccs(batch, rate, mfcc_conf), strict=True):
            assert torch.equal(found, cepstra[place])


FEATURES_ALONE_AND_TOGETHER = """
import torch
from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank, fbanks

waveforms = [torch.randn(400 + 160 * frames) * 2000 for frames in (0, 1, 30, 98, 503, 800)]
for bins in (23, 40, 80):
    conf = FbankConf(num_mel_bins=bins)
    alone = [fbank(waveform, 16000, conf) for waveform in waveforms]
    for order in (slice(None), slice(None, None, -1), slice(3)):
        together = fbanks(waveforms[order], 16000, conf)
        assert all(map(torch.equal, together, alone[order])), bins
"""


@pytest.mark.all
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of processors with x86")
@pytest.mark.parametrize("processor", ["Haswell", "Nehalem", "Prescott"])
def test_features_have_the_same_bits_in_every_batch_on_older_processors(processor):
    flags = Path("/proc/cpuinfo").read_text()
    if processor == "Haswell" and "avx2" not in flags:
        pytest.skip("this processor has no AVX2")
    environment = {**os.environ, "OPENBLAS_CORETYPE": processor, SWITCH: "0"}
    command = [sys.executable, "-c", FEATURES_ALONE_AND_TOGETHER]
    subprocess.run(command, env=environment, check=True)


def test_a_waveform_that_is_not_finite_changes_no_other_frame(way):
    waveforms = [speech_like(4000), torch.full((4000,), math.nan), speech_like(4000, seed=1)]
    before, damaged, after = fbanks(waveforms, 16000, FbankConf())
    assert damaged.isnan().all()
    assert torch.equal(before, fbank(waveforms[0], 16000, FbankConf()))
    assert torch.equal(after, fbank(waveforms[2], 16000, FbankConf()))


@pytest.mark.parametrize(
    ("compute", "conf"),
    [
        *((fbank, FbankConf(snip_edges=snip_edges)) for snip_edges in (True, False)),
        (log_mel_spectrogram, LogMelSpectrogramConf()),
    ],
)
def test_a_waveform_of_int16_has_the_features_of_its_floats(compute, conf, way):
    waveform = speech_like(20000).clamp(-32768, 32767).to(torch.int16)
    assert torch.equal(compute(waveform, 16000, conf), compute(waveform.float(), 16000, conf))


@pytest.mark.parametrize(
    ("compute", "conf"),
    [(fbank, FbankConf()), (mfcc, MfccConf()), (log_mel_spectrogram, LogMelSpectrogramConf())],
)
def test_features_do_not_change_inside_autocast(compute, conf):
    waveform = speech_like(16000)
    expected = compute(waveform, 16000, conf)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compute(waveform, 16000, conf), expected)


def test_too_short_a_waveform_has_no_frame(way):
    assert fbank(torch.ones(399), 16000, FbankConf()).shape == (0, 80)
    assert fbank(torch.ones(400), 16000, FbankConf()).shape == (1, 80)


def test_digital_silence_is_finite(way):
    assert torch.isfinite(fbank(torch.zeros(16000), 16000, FbankConf())).all()


def test_an_empty_band_is_refused(way):
    with pytest.raises(ValueError, match="leave no band at 8000 Hz"):
        fbank(torch.ones(8000), 8000, FbankConf(high_freq=7000))


def test_log_mel_spectrogram_follows_the_description_of_whisper():
    """Expected values by the description of Whisper: hann windows, slaney mels, log10, at most 8
    below the peak.
    """
    waveform = speech_like(16000)
    found = log_mel_spectrogram(waveform, 16000, LogMelSpectrogramConf())
    assert found.shape == (100, 80)
    padded = torch.nn.functional.pad((waveform / 32768)[None, None], (200, 200), mode="reflect")[
        0, 0
    ]
    frames = padded.unfold(0, 400, 160)[:100] * torch.hann_window(400)
    power = torch.fft.rfft(frames).abs().square()
    from torchaudio.functional import melscale_fbanks

    mel = melscale_fbanks(201, 0.0, 8000.0, 80, 16000, norm="slaney", mel_scale="slaney")
    log = (power @ mel).clamp(min=1e-10).log10()
    expected = (log.clamp(min=float(log.max()) - 8) + 4) / 4
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_pad_or_trim_gives_all_whisper_features_one_length():
    conf = LogMelSpectrogramConf(pad_or_trim=True, max_duration=2)
    assert all(
        log_mel_spectrogram(speech_like(size), 16000, conf).shape == (200, 80)
        for size in (16000, 48000)
    )


@pytest.mark.parametrize(
    ("name", "samples", "conf"),
    [
        ("feat_80", 16000, {}),
        ("feat_128", 16000, {"num_mel_bins": 128}),
        ("feat_80_padding1600", 12345, {"padding": 1600}),
        ("feat_80_trim", 12345, {"pad_or_trim": True, "max_duration": 1}),
    ],
)
def test_whisper_features_equal_those_of_wenet(golden2, name, samples, conf):
    golden = torch.load(golden2 / "whisper" / "log_mel.pt", weights_only=True)
    waveform = golden["wav"][0, :samples] * 32768
    found = log_mel_spectrogram(waveform, golden["sample_rate"], LogMelSpectrogramConf(**conf))
    torch.testing.assert_close(found, golden[name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("compute", "conf"), [(fbank, FbankConf()), (log_mel_spectrogram, LogMelSpectrogramConf())]
)
def test_an_accelerator_transforms_powers_of_two_of_frames(compute, conf, monkeypatch):
    monkeypatch.setattr(module, "can_compute", lambda *_: False)
    waveforms = [1000 * torch.randn(samples) for samples in (16000, 16400, 23000, 48000)]
    expected = [compute(waveform, 16000, conf) for waveform in waveforms]
    sizes, transform = set(), torch.fft.rfft
    monkeypatch.setattr(
        torch.fft, "rfft", lambda frames: sizes.add(len(frames)) or transform(frames)
    )
    monkeypatch.setattr(module, "_on_accelerator", lambda _: True)
    for waveform, features in zip(waveforms, expected, strict=True):
        torch.testing.assert_close(compute(waveform, 16000, conf), features, atol=1e-4, rtol=1e-4)
    assert sizes
    assert sizes <= {128, 256, 512}


@pytest.mark.filterwarnings("error")
def test_an_accelerator_computes_chunks_of_any_length(monkeypatch):
    monkeypatch.setattr(module, "can_compute", lambda *_: False)
    waveforms = [speech_like(400 + 160 * frames) for frames in range(70)]
    expected = [fbank(waveform, 16000, FbankConf()) for waveform in waveforms]
    monkeypatch.setattr(module, "_on_accelerator", lambda _: True)
    monkeypatch.setattr(module, "DEVICE_CHUNK_FRAMES", 32)
    for waveform, features in zip(waveforms, expected, strict=True):
        in_chunks = fbank(waveform, 16000, FbankConf())
        torch.testing.assert_close(in_chunks, features, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("compute", "conf"),
    [(fbank, FbankConf()), (mfcc, MfccConf()), (log_mel_spectrogram, LogMelSpectrogramConf())],
)
def test_an_accelerator_computes_features_without_tf32(compute, conf, monkeypatch, request):
    flags = []
    request.addfinalizer(lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False))
    torch.backends.cuda.matmul.allow_tf32 = True

    def recorded(product):
        return lambda *args, **options: (
            flags.append(torch.backends.cuda.matmul.allow_tf32) or product(*args, **options)
        )

    for name in ("mm", "matmul"):
        monkeypatch.setattr(torch, name, recorded(getattr(torch, name)))
    compute(torch.empty(8000, device="meta"), 16000, conf)
    assert set(flags) == {False}
    assert torch.backends.cuda.matmul.allow_tf32


LIKE = torch.empty(0)


def test_a_name_keeps_its_memory_for_the_next_call():
    first = scratch("first", LIKE, 100)
    assert scratch("first", LIKE, 60).data_ptr() == first.data_ptr()
    assert scratch("second", LIKE, 60).data_ptr() != first.data_ptr()
    assert len(scratch("first", LIKE, 101)) == 101


def test_memory_beyond_the_limit_is_not_kept():
    longest = scratch("long", LIKE, LARGEST_KEPT)
    longer = scratch("long", LIKE, LARGEST_KEPT + 1)
    assert longer.data_ptr() != longest.data_ptr()
    assert scratch("long", LIKE, 1).data_ptr() == longest.data_ptr()


def test_memory_that_inference_mode_made_can_be_changed_outside_of_it():
    with torch.inference_mode():
        scratch("inference", LIKE, 10)
    assert not scratch("inference", LIKE, 10).fill_(1).is_inference()


def test_features_of_threads_at_the_same_time_are_those_of_each():
    waveforms = [torch.randn(48000 + 160 * number) * 1000 for number in range(4)]
    expected = [fbank(waveform, 16000, FbankConf()) for waveform in waveforms]
    barrier = threading.Barrier(len(waveforms))
    found = {}

    def compute(number):
        barrier.wait()
        found[number] = [fbank(waveforms[number], 16000, FbankConf()) for _ in range(10)]

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number, features in enumerate(expected):
        assert all(torch.equal(features, again) for again in found[number])
