"""Kaldi's and Whisper's features of one waveform, in float32 torch.

Everything before the Fourier transform is linear, so most passes over the frames fold away: pre-emphasis is applied
once to the whole waveform, the removal of each frame's mean becomes a rank-one correction of its spectrum, and the
power spectrum is summed by the mel matrix itself. Work goes in chunks that stay in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torchaudio.functional import melscale_fbanks

from wenet_uio.config.dataset import FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.audio import INT16_SCALE

CHUNK_FRAMES = 512
"""Frames transformed at a time: 1 MB of float32 at 16 kHz."""
EPSILON = torch.finfo(torch.float32).eps
"""Kaldi's floor of an energy before the logarithm."""


@dataclass(frozen=True)
class _Tables:
    """What a fbank configuration needs, computed once."""

    window: torch.Tensor
    """(window samples,)"""
    mean_spectrum: torch.Tensor
    """(2 * fft bins,): spectrum, real and imaginary in turn, that a frame's mean of one leaves behind."""
    mel: torch.Tensor
    """(2 * fft bins, mel bins): the weight of each squared real and imaginary part."""
    shift: int
    fft_size: int


def fbank(waveform: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """Log mel filter bank energies; equal to Kaldi's without dither to 1e-3.

    Args:
        waveform: (samples,) float32 on the scale of int16.

    Returns:
        (frames, num_mel_bins) float32; no frame where the waveform is shorter than a window.
    """
    tables = _tables(sample_rate, conf)
    size = len(tables.window)
    if not conf.snip_edges:
        waveform = _reflect_edges(waveform, size, tables.shift)
    if len(waveform) < size:
        return waveform.new_empty(0, conf.num_mel_bins)
    emphasis = conf.preemphasis_coefficient
    emphasised = torch.empty_like(waveform)
    emphasised[0] = waveform[0] * (1 - emphasis)
    torch.sub(waveform[1:], waveform[:-1], alpha=emphasis, out=emphasised[1:])
    frames, raw = emphasised.unfold(0, size, tables.shift), waveform.unfold(0, size, tables.shift)
    energies = waveform.new_empty(len(frames), conf.num_mel_bins)
    buffer = waveform.new_zeros(min(CHUNK_FRAMES, len(frames)), tables.fft_size)
    for first in range(0, len(frames), CHUNK_FRAMES):
        chunk = slice(first, first + CHUNK_FRAMES)
        windowed = buffer[: len(frames[chunk])]
        torch.mul(frames[chunk], tables.window, out=windowed[:, :size])
        # A frame's first sample has no left neighbour inside the frame: Kaldi lets it be its own.
        torch.mul(raw[chunk, 0], (1 - emphasis) * tables.window[0], out=windowed[:, 0])
        spectrum = torch.view_as_real(torch.fft.rfft(windowed)).flatten(1)
        if conf.remove_dc_offset:
            spectrum.addr_(raw[chunk].mean(1), tables.mean_spectrum, alpha=-1)
        torch.mm(spectrum.square_(), tables.mel, out=energies[chunk])
    return energies.clamp_(min=EPSILON).log_()


def mfcc(waveform: torch.Tensor, sample_rate: int, conf: MfccConf) -> torch.Tensor:
    """Mel cepstra (frames, num_ceps): the cosine transform of `fbank`, liftered."""
    return fbank(waveform, sample_rate, conf) @ _cepstra(conf.num_mel_bins, conf.num_ceps, conf.cepstral_lifter)


def log_mel_spectrogram(waveform: torch.Tensor, sample_rate: int, conf: LogMelSpectrogramConf) -> torch.Tensor:
    """Whisper's features (samples // hop_length, num_mel_bins): log10 power within 8 of the loudest, scaled to about 1.

    Args:
        waveform: (samples,) float32 on the scale of int16.
    """
    waveform = waveform / INT16_SCALE
    length = sample_rate * conf.max_duration if conf.pad_or_trim else len(waveform) + conf.padding
    waveform = torch.nn.functional.pad(waveform, (0, length - len(waveform)))
    if len(waveform) <= conf.n_fft // 2:  # too short to be reflected at its edges
        return waveform.new_empty(0, conf.num_mel_bins)
    window, mel = _whisper_tables(sample_rate, conf.n_fft, conf.num_mel_bins)
    spectrum = torch.stft(waveform, conf.n_fft, conf.hop_length, window=window, return_complex=True)
    power = spectrum[:, : len(waveform) // conf.hop_length].abs().square_()
    energies = torch.mm(power.T, mel).clamp_(min=1e-10).log10_()
    return torch.maximum(energies, energies.max() - 8.0).add_(4.0).div_(4.0)


@lru_cache(maxsize=16)
def _tables(sample_rate: int, conf: FbankConf) -> _Tables:
    size, shift = (int(sample_rate * ms * 0.001) for ms in (conf.frame_length, conf.frame_shift))
    fft_size = 1 << (size - 1).bit_length()
    window = _window(conf.window_type, size)
    mean = torch.fft.rfft(window * (1 - conf.preemphasis_coefficient), fft_size)
    mel = mel_matrix(sample_rate, fft_size, conf).repeat_interleave(2, dim=0)
    return _Tables(window.float(), torch.view_as_real(mean).flatten().float(), mel.float(), shift, fft_size)


def mel_matrix(sample_rate: int, fft_size: int, conf: FbankConf) -> torch.Tensor:
    """Weights (fft_size // 2 + 1, num_mel_bins) float64 of triangles evenly spaced on Kaldi's mel scale.

    Raises:
        ValueError: the band is empty or beyond half the sample rate.
    """
    nyquist = sample_rate / 2
    high = conf.high_freq if conf.high_freq > 0 else nyquist + conf.high_freq
    if not 0 <= conf.low_freq < high <= nyquist:
        raise ValueError(
            f"fbank_conf: low_freq {conf.low_freq} and high_freq {conf.high_freq} leave no band at {sample_rate} Hz"
        )
    edges = torch.linspace(_mel(conf.low_freq), _mel(high), conf.num_mel_bins + 2, dtype=torch.float64)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    mels = 1127.0 * torch.log1p(
        torch.arange(fft_size // 2 + 1, dtype=torch.float64)[:, None] * sample_rate / fft_size / 700
    )
    weights = torch.minimum((mels - left) / (centre - left), (right - mels) / (right - centre)).clamp_(min=0)
    weights[-1] = 0  # Kaldi leaves the bin at half the sample rate out
    return weights


def _mel(hertz: float) -> float:
    return 1127.0 * math.log1p(hertz / 700.0)


def _window(kind: str, size: int) -> torch.Tensor:
    phase = torch.arange(size, dtype=torch.float64) * (2 * math.pi / (size - 1))
    if kind == "rectangular":
        return torch.ones(size, dtype=torch.float64)
    if kind == "hamming":
        return 0.54 - 0.46 * phase.cos()
    if kind == "blackman":
        return 0.42 - 0.5 * phase.cos() + 0.08 * (2 * phase).cos()
    hann = 0.5 - 0.5 * phase.cos()
    return hann.pow(0.85) if kind == "povey" else hann


def _reflect_edges(waveform: torch.Tensor, size: int, shift: int) -> torch.Tensor:
    """Waveform with mirrored edges, so that frame i is centred on sample (i + 1/2) * shift."""
    frames = (len(waveform) + shift // 2) // shift
    left = size // 2 - shift // 2
    right = max(0, (frames - 1) * shift + size - left - len(waveform))
    if max(left, right) > len(waveform):
        return waveform[:0]
    # Kaldi repeats the edge sample itself: x[-1] is x[0].
    head = waveform[:left].flip(0) if left >= 0 else waveform[:0]
    body = waveform[max(0, -left) :]
    return torch.cat([head, body, waveform[len(waveform) - right :].flip(0)])


@lru_cache(maxsize=16)
def _cepstra(bins: int, cepstra: int, lifter: float) -> torch.Tensor:
    order = torch.arange(cepstra, dtype=torch.float64)
    angle = math.pi / bins * (torch.arange(bins, dtype=torch.float64)[:, None] + 0.5) * order
    matrix = angle.cos() * math.sqrt(2.0 / bins)
    matrix[:, 0] = math.sqrt(1.0 / bins)
    if lifter:
        matrix *= 1 + 0.5 * lifter * torch.sin(math.pi * order / lifter)
    return matrix.float()


@lru_cache(maxsize=16)
def _whisper_tables(sample_rate: int, n_fft: int, bins: int) -> tuple[torch.Tensor, torch.Tensor]:
    mel = melscale_fbanks(n_fft // 2 + 1, 0.0, sample_rate / 2, bins, sample_rate, norm="slaney", mel_scale="slaney")
    return torch.hann_window(n_fft), mel
