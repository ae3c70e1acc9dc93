"""Features of Kaldi and OpenAI in float32 torch: of one waveform, or of a padded batch on any
device.

All steps before the Fourier transform are linear, so few passes over the frames remain.
Pre-emphasis is applied once to the whole waveform. Removing the mean of each frame becomes a
rank-one correction of the windowed frames. The mel matrix also adds the squares of real and
imaginary parts. The work is done in chunks that stay in the cache of the processor.

Several waveforms, or the rows of a padded batch, are treated as one long waveform, in which every
one of them takes a whole number of frame shifts. Frames that overlap two of them are computed and
ignored. So the same code serves one waveform and a batch, with few calls.

On a CPU, `fbanks` and `mfccs` use compiled functions instead (`compiled_fbank.py`), if a compiler
has made them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.config.dataset import FbankConf, LogMelSpectrogramConf, MfccConf
from wenet_uio.dataset.chain.compiled_fbank import can_compute, log_mel_energies
from wenet_uio.dataset.chain.mel import (
    EPSILON,
    FRAME_BLOCK,
    Mel,
    exact_products,
    fft_size_of,
    frames_per_product,
    mel_energies,
    mel_matrix,
    mel_weights,
    window_and_shift,
    window_of,
)

LARGEST_KEPT = 1 << 20
"""Numbers in a block that is kept: 4 MB. Longer ones are allocated for one call."""


class _Blocks(threading.local):
    """Blocks of this thread by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}


_blocks = _Blocks()


def scratch(name: str, like: torch.Tensor, size: int) -> torch.Tensor:
    """Return float32 (size,), not set, on the device of `like`.

    The next call with this name in this thread returns the same memory.
    """
    if like.device.type != "cpu" or size > LARGEST_KEPT:
        return like.new_empty(size, dtype=torch.float32)

    # Arrays of numpy: a tensor made in torch's inference mode could not be changed outside of it.
    # Memory of torch: it begins at a cache line.
    block = _blocks.by_name.get(name)
    if block is None or len(block) < size:
        block = _blocks.by_name[name] = torch.empty(size).numpy()
    return torch.from_numpy(block[:size])


CHUNK_FRAMES = 21 * FRAME_BLOCK
"""Frames per chunk on a CPU, 504: 1 MB of float32 at 16 kHz."""
JOINED_SAMPLES = 1 << 19
"""Samples of waveforms that are joined: 2 MB of float32."""
DEVICE_CHUNK_FRAMES = 32768
"""Frames per chunk on an accelerator."""


@dataclass(frozen=True)
class _Tables:
    """Tables of a fbank configuration, computed once."""

    window: torch.Tensor
    """(window samples,)"""
    ones: torch.Tensor
    """(window samples,): a frame of ones after pre-emphasis and window."""
    mel: Mel
    shift: int
    fft_size: int


def fbank(waveform: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """Log mel filter bank energies; equal to Kaldi's without dither to 1e-3.

    Args:
        waveform: (samples,) float32 or int16, on the scale of int16.

    Returns:
        (frames, num_mel_bins) float32; no frames if the waveform is shorter than a window.
    """
    return fbanks([waveform], sample_rate, conf)[0]


def fbanks(
    waveforms: Sequence[torch.Tensor], sample_rate: int, conf: FbankConf
) -> list[torch.Tensor]:
    """Return `fbank` of each of one or more waveforms of any lengths."""
    size, shift = window_and_shift(sample_rate, conf)
    if conf.snip_edges:
        frames = [max(0, 1 + (len(waveform) - size) // shift) for waveform in waveforms]
    else:
        frames = [(len(waveform) + shift // 2) // shift for waveform in waveforms]
        waveforms = [_add_edges(waveform, sample_rate, conf) for waveform in waveforms]

    on_cpu = not any(map(_on_accelerator, waveforms))
    if on_cpu and can_compute(sample_rate, conf):
        return log_mel_energies(waveforms, frames, sample_rate, conf)

    features = _energies_in_groups(waveforms, sample_rate, conf)
    return [energies[:number] for energies, number in zip(features, frames, strict=True)]


def _energies_in_groups(
    waveforms: Sequence[torch.Tensor], sample_rate: int, conf: FbankConf
) -> list[torch.Tensor]:
    """Return `_energies_of_all`, of JOINED_SAMPLES at a time."""
    features: list[torch.Tensor] = []
    group: list[torch.Tensor] = []
    samples = 0
    for waveform in waveforms:
        if group and samples + len(waveform) > JOINED_SAMPLES:
            features += _energies_of_all(group, sample_rate, conf)
            group, samples = [], 0

        group.append(waveform)
        samples += len(waveform)

    return [*features, *_energies_of_all(group, sample_rate, conf)]


def _energies_of_all(
    waveforms: Sequence[torch.Tensor], sample_rate: int, conf: FbankConf
) -> Sequence[torch.Tensor]:
    """Return the energies of the frames of each waveform, and of frames that reach into the next
    one.
    """
    shift = window_and_shift(sample_rate, conf)[1]
    shifts = [-(-len(waveform) // shift) for waveform in waveforms]
    joined = scratch("joined", waveforms[0], sum(shifts) * shift)
    places = [*pairwise([0, *accumulate(shifts)])]
    for waveform, (first, last) in zip(waveforms, places, strict=True):
        row = joined[first * shift : last * shift]
        row[: len(waveform)] = waveform
        row[len(waveform) :] = 0

    energies = _energies(joined, sample_rate, conf)
    return [energies[first:last] for first, last in places]


def _add_edges(waveform: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    lengths = torch.full((1,), len(waveform), device=waveform.device)
    return _kaldi_edges(waveform[None], lengths, sample_rate, conf)[0]


def batch_fbank(
    waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: FbankConf
) -> torch.Tensor:
    """Return `fbank` of every row of a padded batch.

    Args:
        waveforms: (B, samples) float32, 0 beyond `lengths`.
        lengths: (B,) samples, on the device of `waveforms`.

    Returns:
        (B, T, num_mel_bins), where T is at least the largest number of frames. Frames beyond the
        end of a row are undefined.
    """
    if not conf.snip_edges:
        waveforms = _kaldi_edges(waveforms, lengths, sample_rate, conf)

    size, shift = window_and_shift(sample_rate, conf)
    return _energies(_join_rows(waveforms, size, shift), sample_rate, conf).view(
        len(waveforms), -1, conf.num_mel_bins
    )


def _energies(waveform: torch.Tensor, sample_rate: int, conf: FbankConf) -> torch.Tensor:
    """Log mel energies of all frames that lie inside a waveform (samples,)."""
    tables = _fbank_tables(sample_rate, conf, waveform.device)  # pyright: ignore[reportArgumentType] - frozen, so hashable
    size = len(tables.window)
    if len(waveform) < size:
        return waveform.new_empty(0, conf.num_mel_bins)

    # Pre-emphasis of the whole waveform at once: x[n] - emphasis * x[n - 1]. The first sample is
    # replaced in its frame.
    emphasis = conf.preemphasis_coefficient
    emphasised = scratch("emphasised", waveform, len(waveform))
    torch.sub(waveform[1:], waveform[:-1], alpha=emphasis, out=emphasised[1:])

    # Views of all frames, which copy nothing: with pre-emphasis, and as they were.
    frames, raw = (samples.unfold(0, size, tables.shift) for samples in (emphasised, waveform))
    # The first sample of a frame has no left neighbour inside the frame: Kaldi uses the sample
    # itself.
    firsts = raw[:, 0] * tables.ones[0]
    # A frame less its mean, with pre-emphasis and window, is that of the frame less the mean times
    # that of ones.
    means = raw.mean(1) if conf.remove_dc_offset else None

    # On a CPU whole blocks of frames, so that the bits of a frame do not depend on their number.
    number = len(raw)
    block = 1 if _on_accelerator(waveform) else FRAME_BLOCK
    rows = -(-number // block) * block
    step = min(rows, _chunk_frames(waveform, tables.mel))
    energies = waveform.new_empty(rows, conf.num_mel_bins)
    buffer = scratch("windowed", waveform, step * tables.fft_size).view(step, tables.fft_size)
    buffer[:, size:] = 0  # padding of the Fourier transform

    for first in range(0, rows, step):
        chunk = slice(first, min(first + step, number))
        buffer = buffer[: rows - first]
        buffer[chunk.stop - first :] = 0  # of the last block
        windowed = buffer[: chunk.stop - first, :size]
        torch.mul(frames[chunk], tables.window, out=windowed)
        windowed[:, 0] = firsts[chunk]
        if means is not None:
            windowed.addr_(means[chunk], tables.ones, alpha=-1)

        mel_energies(_spectrum(buffer), tables.mel, energies[first : first + step])

    return _log_(energies[:number].clamp_(min=EPSILON))


def _log_(x: torch.Tensor) -> torch.Tensor:
    """Compute the logarithm in place. On a CPU, numpy's float32 logarithm is faster than torch's."""
    if _on_accelerator(x):
        return x.log_()

    array = x.numpy()
    with np.errstate(invalid="ignore"):  # nan stays nan, as in torch
        np.log(array, out=array)
    return x


def mfcc(waveform: torch.Tensor, sample_rate: int, conf: MfccConf) -> torch.Tensor:
    """Compute mel cepstra (frames, num_ceps): the liftered cosine transform of `fbank`."""
    return mfccs([waveform], sample_rate, conf)[0]


def mfccs(
    waveforms: Sequence[torch.Tensor], sample_rate: int, conf: MfccConf
) -> list[torch.Tensor]:
    """Return `mfcc` of each of one or more waveforms of any lengths."""
    return [_liftered_cepstra(energies, conf) for energies in fbanks(waveforms, sample_rate, conf)]


def batch_mfcc(
    waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: MfccConf
) -> torch.Tensor:
    """Return `mfcc` of every row of a padded batch; arguments and result as those of `batch_fbank`."""
    return _liftered_cepstra(batch_fbank(waveforms, lengths, sample_rate, conf), conf)


def _liftered_cepstra(energies: torch.Tensor, conf: MfccConf) -> torch.Tensor:
    with exact_products(energies):
        return energies @ _cepstra(conf, energies.device)  # pyright: ignore[reportArgumentType] - frozen, so hashable


def log_mel_spectrogram(
    waveform: torch.Tensor, sample_rate: int, conf: LogMelSpectrogramConf
) -> torch.Tensor:
    """Return features of OpenAI's speech models (samples // hop_length, num_mel_bins).

    The log10 of the power, at most 8 below the loudest value, scaled to about -1 to 1.

    Args:
        waveform: (samples,) float32 on the scale of int16.
    """
    samples = len(waveform)
    length = sample_rate * conf.max_duration if conf.pad_or_trim else samples + conf.padding
    lengths = torch.full((1,), samples, device=waveform.device)
    return batch_log_mel_spectrogram(waveform[None], lengths, sample_rate, conf)[
        0, : length // conf.hop_length
    ]


def batch_log_mel_spectrogram(
    waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: LogMelSpectrogramConf
) -> torch.Tensor:
    """Return `log_mel_spectrogram` of every row of a padded batch; arguments and result as those of
    `batch_fbank`.
    """
    rows, num_samples = waveforms.shape
    if conf.pad_or_trim:
        padded_length = sample_rate * conf.max_duration
        lengths = torch.full_like(lengths, padded_length)
    else:
        padded_length, lengths = num_samples + conf.padding, lengths + conf.padding

    # A negative number of samples to pad trims the waveforms.
    waveforms = torch.nn.functional.pad(waveforms / INT16_SCALE, (0, padded_length - num_samples))

    half = conf.n_fft // 2
    mirrored = _mirror_edges(waveforms, lengths, half, half, repeat=False)
    frames = _join_rows(mirrored, conf.n_fft, conf.hop_length).unfold(
        0, conf.n_fft, conf.hop_length
    )

    tables = _log_mel_tables(sample_rate, conf, waveforms.device)  # pyright: ignore[reportArgumentType] - hashable
    window, mel = tables
    energies = frames.new_empty(len(frames), conf.num_mel_bins)
    step = _chunk_frames(waveforms, mel)
    for first in range(0, len(frames), step):
        chunk = slice(first, first + step)
        spectrum = _spectrum(frames[chunk] * window)
        mel_energies(spectrum, mel, energies[chunk])

    # Frames beyond the end of a row must not set its loudest value.
    energies = _log_(energies.clamp_(min=1e-10)).div_(math.log(10))
    energies = energies.view(rows, -1, conf.num_mel_bins)
    frame = torch.arange(energies.size(1), device=energies.device)
    beyond = frame >= (lengths // conf.hop_length)[:, None]
    loudest = energies.amax(2).masked_fill_(beyond, -math.inf).amax(1)

    # 8 below the loudest value are 80 dB. Then the scale of these features, about -1 to 1.
    return torch.maximum(energies, loudest[:, None, None] - 8.0).add_(4.0).div_(4.0)


def _join_rows(waveforms: torch.Tensor, size: int, shift: int) -> torch.Tensor:
    """Concatenate rows (B, samples), each padded to a whole number of shifts, so that all have
    equally many frames.
    """
    rows, width = waveforms.shape
    padded = -(-width // shift) * shift
    joined = waveforms.new_zeros(rows * padded + max(0, size - shift))
    joined[: rows * padded].view(rows, padded)[:, :width] = waveforms

    return joined


def _on_accelerator(x: torch.Tensor) -> bool:
    return x.device.type != "cpu"


def _chunk_frames(waveforms: torch.Tensor, mel: Mel) -> int:
    if _on_accelerator(waveforms):
        return DEVICE_CHUNK_FRAMES
    return min(CHUNK_FRAMES, frames_per_product(mel))


def _spectrum(windowed: torch.Tensor) -> torch.Tensor:
    """Fourier transform of frames (frames, samples) -> (frames, 2 * fft bins), real and imaginary
    parts alternating.

    An accelerator makes a plan for each number of frames that it has not seen. So it gets powers of
    two.
    """
    if not _on_accelerator(windowed):
        return torch.view_as_real(torch.fft.rfft(windowed)).flatten(1)

    frames = len(windowed)
    excess = (1 << (frames - 1).bit_length()) - frames
    padded = torch.nn.functional.pad(windowed, (0, 0, 0, excess))
    return torch.view_as_real(torch.fft.rfft(padded)).flatten(1)[:frames]


@lru_cache(maxsize=16)
def _fbank_tables(sample_rate: int, conf: FbankConf, device: torch.device) -> _Tables:
    """Compute what does not depend on the waveform, in float64; the tables are float32."""
    size, shift = window_and_shift(sample_rate, conf)
    fft_size = fft_size_of(size)
    window = window_of(conf.window_type, size)
    window, ones = (
        table.float().to(device) for table in (window, window * (1 - conf.preemphasis_coefficient))
    )
    mel = mel_weights(mel_matrix(sample_rate, fft_size, conf), device)

    return _Tables(window, ones, mel, shift, fft_size)


def _kaldi_edges(
    waveforms: torch.Tensor, lengths: torch.Tensor, sample_rate: int, conf: FbankConf
) -> torch.Tensor:
    """Mirror the edges of waveforms, so that frame i is centred on sample (i + 1/2) * shift of its
    waveform.
    """
    size, shift = window_and_shift(sample_rate, conf)
    # A window shorter than the shift begins inside of the waveform: then samples are cut off.
    samples_before = size // 2 - shift // 2
    mirrored = _mirror_edges(waveforms, lengths, max(0, samples_before), size, repeat=True)
    return mirrored[:, max(0, -samples_before) :]


def _mirror_edges(
    waveforms: torch.Tensor,
    lengths: torch.Tensor,
    margin_before: int,
    margin_after: int,
    *,
    repeat: bool,
) -> torch.Tensor:
    """Mirror each waveform (B, samples) at its start and at its own end.

    Args:
        lengths: (B,) samples of each waveform.
        margin_before: samples to add before the start.
        margin_after: samples to add behind the end.
        repeat: the sample at an edge occurs twice, as in Kaldi: x[-1] is x[0] instead of x[1].

    Returns:
        (B, margin_before + samples + margin_after).
    """
    extended = torch.nn.functional.pad(waveforms, (margin_before, margin_after))

    # (B, margins) places of the added samples, counted from the start of the waveform
    ends = lengths[:, None]
    before_start = torch.arange(-margin_before, 0, device=lengths.device)
    behind_end = ends + torch.arange(margin_after, device=lengths.device)
    places = torch.cat([before_start.expand(len(lengths), margin_before), behind_end], dim=1)

    # A waveform that is mirrored at both edges again and again has this period: a margin may be
    # longer than the waveform. The margins of an empty one stay 0.
    period = (2 * ends if repeat else 2 * ends - 2).clamp(min=1)
    sources = places.remainder(period)
    sources = torch.minimum(sources, period - 1 - sources if repeat else period - sources)

    mirrored = extended.gather(1, sources + margin_before)
    return extended.scatter_(1, places + margin_before, mirrored)


@lru_cache(maxsize=16)
def _cepstra(conf: MfccConf, device: torch.device) -> torch.Tensor:
    """Return the matrix (mel bins, cepstra) of the cosine transform, with the lifter of Kaldi."""
    order = torch.arange(conf.num_ceps, dtype=torch.float64)
    angle = (
        math.pi
        / conf.num_mel_bins
        * (torch.arange(conf.num_mel_bins, dtype=torch.float64)[:, None] + 0.5)
        * order
    )
    matrix = angle.cos() * math.sqrt(2.0 / conf.num_mel_bins)
    matrix[:, 0] = math.sqrt(1.0 / conf.num_mel_bins)
    if conf.cepstral_lifter:
        matrix *= 1 + 0.5 * conf.cepstral_lifter * torch.sin(math.pi * order / conf.cepstral_lifter)

    return matrix.float().to(device)


@lru_cache(maxsize=16)
def _log_mel_tables(
    sample_rate: int, conf: LogMelSpectrogramConf, device: torch.device
) -> tuple[torch.Tensor, Mel]:
    """Return the window (n_fft,) and the mel weights of log_mel_spectrogram."""
    from torchaudio.functional import melscale_fbanks  # slow import, needed for these features only

    bins = conf.n_fft // 2 + 1
    mel = melscale_fbanks(
        bins,
        0.0,
        sample_rate / 2,
        conf.num_mel_bins,
        sample_rate,
        norm="slaney",
        mel_scale="slaney",
    )
    return torch.hann_window(conf.n_fft).to(device), mel_weights(mel, device)
