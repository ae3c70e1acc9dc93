"""Kaldi's and Whisper's features, in float32 torch: of one waveform, or of a padded batch on any device.

Everything before the Fourier transform is linear, so most passes over the frames fold away: pre-emphasis is applied
once to the whole waveform, the removal of each frame's mean becomes a rank-one correction of its spectrum, and the
power spectrum is summed by the mel matrix itself. Work goes in chunks that stay in the cache.

A padded batch is one long waveform whose rows are whole numbers of frame shifts: frames that run over from one row to
the next are computed too, and not looked at. So one code serves both, without a loop over utterances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch

from wenet_uio.audio.read import INT16_SCALE
from wenet_uio.config.dataset import FbankConf, LogMelSpectrogramConf, MfccConf

CHUNK_FRAMES = 512
"""Frames that a CPU transforms at a time: 1 MB of float32 at 16 kHz."""
DEVICE_CHUNK_FRAMES = 32768
"""Frames that an accelerator transforms at a time."""
BAND_BINS = 16
"""Mel bins of a matrix product on a CPU: a vector register of float32."""
EPSILON = torch.finfo(torch.float32).eps
"""Kaldi's floor of an energy before the logarithm."""


class MelBand(NamedTuple):
    """Mel bins that lie side by side: a product of few of them leaves out most of the zeros of the mel matrix."""

    spectrum: slice
    """Squared real and imaginary parts that have a weight in any of them."""
    bins: slice
    weights: torch.Tensor
    """(parts, bins)."""


@dataclass(frozen=True)
class _Tables:
    """What a fbank configuration needs, computed once."""

    window: torch.Tensor
    """(window samples,)"""
    mean_spectrum: torch.Tensor
    """(2 * fft bins,): spectrum, real and imaginary in turn, that a frame's mean of one leaves behind."""
    mel: tuple[MelBand, ...]
    shift: int
    fft_size: int


def fbank(waveform: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """Log mel filter bank energies; equal to Kaldi's without dither to 1e-3.

    Args:
        waveform: (samples,) float32 on the scale of int16.

    Returns:
        (frames, num_mel_bins) float32; no frame where the waveform is shorter than a window.
    """
    if conf.snip_edges:
        return _energies(waveform, sample_rate, conf)
    lengths = torch.full((1,), len(waveform), device=waveform.device)
    shift = window_and_shift(sample_rate, conf)[1]
    frames = (len(waveform) + shift // 2) // shift
    return _energies(_kaldi_edges(waveform[None], lengths, sample_rate, conf)[0], sample_rate, conf)[:frames]


def batch_fbank(waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """`fbank` of every row.

    Args:
        waveforms: (B, samples) float32, 0 beyond `lengths` (B,), which are on the same device.

    Returns:
        (B, T, num_mel_bins), T no less than the frames of any; those beyond an utterance's own hold anything.
    """
    if not conf.snip_edges:
        waveforms = _kaldi_edges(waveforms, lengths, sample_rate, conf)
    size, shift = window_and_shift(sample_rate, conf)
    return _energies(_joined(waveforms, size, shift), sample_rate, conf).view(len(waveforms), -1, conf.num_mel_bins)


def _energies(waveform: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """Log mel energies of the whole frames of (samples,)."""
    tables = _tables(sample_rate, conf, waveform.device)
    size = len(tables.window)
    if len(waveform) < size:
        return waveform.new_empty(0, conf.num_mel_bins)
    emphasis = conf.preemphasis_coefficient
    emphasised = torch.empty_like(waveform)
    emphasised[0] = waveform[0] * (1 - emphasis)
    torch.sub(waveform[1:], waveform[:-1], alpha=emphasis, out=emphasised[1:])
    frames, raw = emphasised.unfold(0, size, tables.shift), waveform.unfold(0, size, tables.shift)
    energies = waveform.new_empty(len(frames), conf.num_mel_bins)
    step = _chunk_frames(waveform)
    buffer = waveform.new_zeros(min(step, len(frames)), tables.fft_size)
    for first in range(0, len(frames), step):
        chunk = slice(first, first + step)
        windowed = buffer[: len(frames[chunk])]
        torch.mul(frames[chunk], tables.window, out=windowed[:, :size])
        # A frame's first sample has no left neighbour inside the frame: Kaldi lets it be its own.
        torch.mul(raw[chunk, 0], (1 - emphasis) * tables.window[0], out=windowed[:, 0])
        spectrum = torch.view_as_real(torch.fft.rfft(windowed)).flatten(1)
        if conf.remove_dc_offset:
            spectrum.addr_(raw[chunk].mean(1), tables.mean_spectrum, alpha=-1)
        _mel_energies(spectrum, tables.mel, energies[chunk])
    return energies.clamp_(min=EPSILON).log_()


def mfcc(waveform: torch.Tensor, sample_rate: int, conf: MfccConf) -> torch.Tensor:
    """Mel cepstra (frames, num_ceps): the cosine transform of `fbank`, liftered."""
    return fbank(waveform, sample_rate, conf) @ _cepstra(conf, waveform.device)


def batch_mfcc(waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: MfccConf) -> torch.Tensor:
    """`mfcc` of every row, as `batch_fbank` is `fbank`."""
    return batch_fbank(waveforms, lengths, sample_rate, conf) @ _cepstra(conf, waveforms.device)


def log_mel_spectrogram(waveform: torch.Tensor, sample_rate: int, conf: LogMelSpectrogramConf) -> torch.Tensor:
    """Whisper's features (samples // hop_length, num_mel_bins): log10 power within 8 of the loudest, scaled to about 1.

    Args:
        waveform: (samples,) float32 on the scale of int16.
    """
    samples = len(waveform)
    length = sample_rate * conf.max_duration if conf.pad_or_trim else samples + conf.padding
    lengths = torch.full((1,), samples, device=waveform.device)
    return batch_log_mel_spectrogram(waveform[None], lengths, sample_rate, conf)[0, : length // conf.hop_length]


def batch_log_mel_spectrogram(
    waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: LogMelSpectrogramConf
) -> torch.Tensor:
    """`log_mel_spectrogram` of every row, as `batch_fbank` is `fbank`."""
    rows, width = waveforms.shape
    if conf.pad_or_trim:
        width = sample_rate * conf.max_duration
        lengths = torch.full_like(lengths, width)
    else:
        width, lengths = width + conf.padding, lengths + conf.padding
    waveforms = torch.nn.functional.pad(waveforms / INT16_SCALE, (0, width - waveforms.size(1)))
    half = conf.n_fft // 2
    mirrored = _mirror_edges(waveforms, lengths, half, half, repeat=False)
    window, mel = _whisper_tables(sample_rate, conf, waveforms.device)
    frames = _joined(mirrored, conf.n_fft, conf.hop_length).unfold(0, conf.n_fft, conf.hop_length)
    energies = frames.new_empty(len(frames), conf.num_mel_bins)
    step = _chunk_frames(waveforms)
    for first in range(0, len(frames), step):
        chunk = slice(first, first + step)
        spectrum = torch.view_as_real(torch.fft.rfft(frames[chunk] * window)).flatten(1)
        _mel_energies(spectrum, mel, energies[chunk])
    energies = energies.clamp_(min=1e-10).log10_().view(rows, -1, conf.num_mel_bins)
    frame = torch.arange(energies.size(1), device=energies.device)
    beyond = frame >= (lengths // conf.hop_length)[:, None]
    loudest = energies.amax(2).masked_fill_(beyond, -math.inf).amax(1)
    return torch.maximum(energies, loudest[:, None, None] - 8.0).add_(4.0).div_(4.0)


def _mel_energies(spectrum: torch.Tensor, mel: tuple[MelBand, ...], energies: torch.Tensor) -> None:
    """Square a spectrum (frames, 2 * fft bins) in place, and sum it into `energies` (frames, mel bins)."""
    spectrum.square_()
    for band in mel:
        torch.mm(spectrum[:, band.spectrum], band.weights, out=energies[:, band.bins])


def window_and_shift(sample_rate: int, conf: FbankConf) -> tuple[int, int]:
    """Samples of a frame, and from the start of one to that of the next."""
    return int(sample_rate * conf.frame_length * 0.001), int(sample_rate * conf.frame_shift * 0.001)


def _joined(waveforms: torch.Tensor, size: int, shift: int) -> torch.Tensor:
    """Rows (B, samples) one behind the other, with room for equally many frames each."""
    rows, width = waveforms.shape
    padded = -(-width // shift) * shift
    joined = waveforms.new_zeros(rows * padded + max(0, size - shift))
    joined[: rows * padded].view(rows, padded)[:, :width] = waveforms
    return joined


def _chunk_frames(waveforms: torch.Tensor) -> int:
    return CHUNK_FRAMES if waveforms.device.type == "cpu" else DEVICE_CHUNK_FRAMES


@lru_cache(maxsize=16)
def _tables(sample_rate: int, conf: FbankConf, device: torch.device) -> _Tables:
    size, shift = window_and_shift(sample_rate, conf)
    fft_size = 1 << (size - 1).bit_length()
    window = _window(conf.window_type, size)
    mean = torch.fft.rfft(window * (1 - conf.preemphasis_coefficient), fft_size)
    window, mean = (table.float().to(device) for table in (window, torch.view_as_real(mean).flatten()))
    return _Tables(window, mean, _mel_bands(mel_matrix(sample_rate, fft_size, conf), device), shift, fft_size)


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


def _mel_bands(matrix: torch.Tensor, device: torch.device) -> tuple[MelBand, ...]:
    """Mel weights (fft bins, mel bins) in bands; an accelerator has one for all, since its products are quick."""
    weights = matrix.float().repeat_interleave(2, dim=0)
    bins = weights.size(1)
    step = BAND_BINS if device.type == "cpu" else bins
    bands = []
    for first in range(0, bins, step):
        part = weights[:, first : first + step]
        used = part.any(1).nonzero().flatten().tolist() or [0]
        rows = slice(used[0], used[-1] + 1)
        bands.append(MelBand(rows, slice(first, first + step), part[rows].contiguous().to(device)))
    return tuple(bands)


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


def _kaldi_edges(waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """Waveforms with mirrored edges, so that frame i is centred on sample (i + 1/2) * shift of its waveform."""
    size, shift = window_and_shift(sample_rate, conf)
    left = size // 2 - shift // 2
    return _mirror_edges(waveforms, lengths, max(0, left), size, repeat=True)[:, max(0, -left) :]


def _mirror_edges(
    waveforms: torch.Tensor, lengths: torch.Tensor, left: int, right: int, *, repeat: bool
) -> torch.Tensor:
    """(B, left + samples + right): each waveform, mirrored at its start and at its own end.

    `repeat` has the sample at an edge twice, as Kaldi does: x[-1] is x[0], and not x[1].
    """
    extended = torch.nn.functional.pad(waveforms, (left, right))
    ends = lengths[:, None]
    before = torch.arange(-left, 0, device=lengths.device).expand(len(lengths), left)
    place = torch.cat([before, ends + torch.arange(right, device=lengths.device)], dim=1)
    period = 2 * ends if repeat else (2 * ends - 2).clamp(min=1)
    folded = place.remainder(period)
    folded = torch.minimum(folded, period - 1 - folded if repeat else period - folded)
    return extended.scatter_(1, place + left, waveforms.gather(1, folded))


@lru_cache(maxsize=16)
def _cepstra(conf: MfccConf, device: torch.device) -> torch.Tensor:
    order = torch.arange(conf.num_ceps, dtype=torch.float64)
    angle = math.pi / conf.num_mel_bins * (torch.arange(conf.num_mel_bins, dtype=torch.float64)[:, None] + 0.5) * order
    matrix = angle.cos() * math.sqrt(2.0 / conf.num_mel_bins)
    matrix[:, 0] = math.sqrt(1.0 / conf.num_mel_bins)
    if conf.cepstral_lifter:
        matrix *= 1 + 0.5 * conf.cepstral_lifter * torch.sin(math.pi * order / conf.cepstral_lifter)
    return matrix.float().to(device)


@lru_cache(maxsize=16)
def _whisper_tables(
    sample_rate: int, conf: LogMelSpectrogramConf, device: torch.device
) -> tuple[torch.Tensor, tuple[MelBand, ...]]:
    from torchaudio.functional import melscale_fbanks  # only these features need it

    bins = conf.n_fft // 2 + 1
    mel = melscale_fbanks(bins, 0.0, sample_rate / 2, conf.num_mel_bins, sample_rate, norm="slaney", mel_scale="slaney")
    return torch.hann_window(conf.n_fft).to(device), _mel_bands(mel, device)
