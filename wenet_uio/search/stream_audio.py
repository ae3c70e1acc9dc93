"""Samples of a stream: checked and kept when they arrive, resampled when they are needed."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np
import torch

from wenet_uio.audio.read import INT16_SCALE
from wenet_uio.dataset.chain.waveform import resample

FILTER = 16
"""Input samples, at the lower of both rates, that a resampled sample depends on at each side; more
than it needs."""
PIECE = 0.5
"""Most seconds of a piece; longer parts are divided, so that a step of a stream does not take much
more than it needs.
"""
KINDS = "int16, or floats from -1 to 1"
NEVER_MORE = "the stream has ended: start another one for the next utterance"


class StreamResampler:
    """Resamples a waveform that arrives in parts to the samples that `resample` gives for the whole
    waveform.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        self._rates = source_rate, target_rate
        ratio = Fraction(source_rate, target_rate)
        self._source, self._target = ratio.numerator, ratio.denominator
        self._context = -(-FILTER * max(source_rate, target_rate) // (target_rate * self._source))
        """Blocks of `_source` input samples that must be known at each side of a block."""
        self._buffer = torch.zeros(0)
        self._left = 0
        """Blocks at the start of the buffer whose output was returned before."""

    def accept(self, waveform: torch.Tensor, *, last: bool = False) -> torch.Tensor:
        """Add samples (N,), and return the resampled ones that no later sample can change; with
        `last`, all.
        """
        if self._source == self._target:
            return waveform
        self._buffer = torch.cat((self._buffer, waveform))
        ready = len(self._buffer) // self._source - self._context
        if not last and ready <= self._left:
            return waveform.new_zeros(0)
        if not len(self._buffer):
            return self._buffer
        resampled = resample(self._buffer, *self._rates)
        found = resampled[self._left * self._target : None if last else ready * self._target]
        self._buffer = self._buffer[max(0, ready - self._context) * self._source :]
        self._left = min(ready, self._context)
        return found


class StreamAudio:
    """A queue of samples. One thread may add samples while another one takes them."""

    def __init__(self, source_rate: int, target_rate: int) -> None:
        """Set the rates of what comes in and of what goes out, in Hz.

        Raises:
            ValueError: the source rate is not above 0.
        """
        if source_rate < 1:
            raise ValueError(f"sample_rate: expected above 0 Hz, found {source_rate}")
        self.rate = target_rate
        """Hz of the samples that `take` returns."""
        self.ratio = source_rate / target_rate
        """Samples in for each sample out."""
        self._resampler = StreamResampler(source_rate, target_rate)
        self._source_rate = source_rate
        self._pieces: deque[torch.Tensor] = deque()
        self._pushed = self._taken = 0
        self.ended = False
        """No samples follow."""
        self.empty = False
        """All samples were taken, and none follow."""

    @property
    def queued(self) -> int:
        """Samples, at the rate of the source, that were not taken."""
        return self._pushed - self._taken

    @property
    def seconds(self) -> float:
        """Length of what was pushed."""
        return self._pushed / self._source_rate

    def push(self, samples: np.ndarray | torch.Tensor) -> None:
        """Add samples (N,) of one channel: int16, or floats from -1 to 1.

        Raises:
            ValueError: the samples have another shape or type, or the stream has ended.
        """
        if self.ended:
            raise ValueError(NEVER_MORE)
        found = _checked(samples)
        for piece in found.split(max(1, round(PIECE * self._source_rate))):
            self._pieces.append(piece)
            self._pushed += len(piece)

    def take(self, least: int) -> torch.Tensor | None:
        """Take `least` or a few more of the queued samples, resampled to float32 on the scale of
        int16.

        None if fewer are queued, unless the stream has ended: then the rest, once.
        """
        ended = self.ended  # before the queue is looked at: `push` may run in another thread
        if self.empty or (self.queued < least and not ended):
            return None
        pieces = [torch.zeros(0)]
        count = 0
        while count < least and self._pieces:
            piece = self._pieces.popleft()
            pieces.append(piece.float())
            count += len(piece)
        self._taken += count
        self.empty = ended and not self._pieces
        return self._resampler.accept(torch.cat(pieces), last=self.empty)


def _checked(samples: np.ndarray | torch.Tensor) -> torch.Tensor:
    """A copy of the samples: int16, or float32 on the scale of int16."""
    try:
        found = (
            samples.detach().cpu()
            if isinstance(samples, torch.Tensor)
            else torch.from_numpy(np.array(samples))
        )
    except TypeError:
        raise ValueError(f"samples: expected {KINDS}; found {np.asarray(samples).dtype}") from None
    if found.dim() != 1:
        raise ValueError(f"samples: expected one channel (N,), found shape {tuple(found.shape)}")
    if found.is_floating_point():
        found = found.float() * INT16_SCALE
        if not bool(torch.isfinite(found).all()):
            raise ValueError("samples: not all are numbers")
        return found
    if found.dtype != torch.int16:
        raise ValueError(f"samples: expected {KINDS}; found {found.dtype}")
    return found.clone() if isinstance(samples, torch.Tensor) else found
