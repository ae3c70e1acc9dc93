"""Audio that arrives in parts: its samples are checked and kept, then resampled and made features
when these are needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import torch

from wenet_uio.audio.decoders import INT16_SCALE
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.waveform import resample, resampling_ratio
from wenet_uio.dataset.lengths import frame_count
from wenet_uio.dataset.types import Example

FILTER = 16
"""Samples at each side, at the lower of both rates, on which a resampled sample may depend. The
filter is shorter, so this is safe."""
KINDS = "int16, or floats from -1 to 1"
NEVER_MORE = "the stream has ended: start another one for the next utterance"


class StreamResampler:
    """Resample a waveform that arrives in parts.

    The result equals that of `resample` for the whole waveform.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        ratio = resampling_ratio(source_rate, target_rate)
        self._source, self._target = ratio.numerator, ratio.denominator
        self._context = -(-FILTER * max(source_rate, target_rate) // (target_rate * self._source))
        """Blocks of `_source` input samples that must be known at each side of a block."""
        self._buffer = torch.zeros(0)
        self._returned_blocks = 0
        """Blocks at the start of the buffer whose output was returned before."""

    def accept(self, waveform: torch.Tensor, *, last: bool = False) -> torch.Tensor:
        """Add samples (N,), and return the resampled ones that no later sample can change.

        Args:
            last: no samples follow: return all that remain.
        """
        if self._source == self._target:
            return waveform

        self._buffer = torch.cat((self._buffer, waveform))
        ready_blocks = len(self._buffer) // self._source - self._context
        if not last and ready_blocks <= self._returned_blocks:
            return waveform.new_zeros(0)
        if not len(self._buffer):
            return self._buffer

        resampled = resample(self._buffer, self._source, self._target)
        end = None if last else ready_blocks * self._target
        new_samples = resampled[self._returned_blocks * self._target : end]

        self._buffer = self._buffer[max(0, ready_blocks - self._context) * self._source :]
        self._returned_blocks = min(ready_blocks, self._context)
        return new_samples


class StreamAudio:
    """A queue of samples. One thread may add samples while another one takes them."""

    def __init__(self, source_rate: int, target_rate: int) -> None:
        """Set the sample rates of input and output, in Hz.

        Raises:
            ValueError: the source rate is not above 0.
        """
        if source_rate < 1:
            raise ValueError(f"sample_rate: expected above 0 Hz, found {source_rate}")

        self.rate = target_rate
        """Sample rate of what `take` returns, in Hz."""
        self.ratio = source_rate / target_rate
        """Input samples for each output sample."""
        self._resampler = StreamResampler(source_rate, target_rate)
        self._source_rate = source_rate
        self._pieces: deque[torch.Tensor] = deque()
        self._pushed = self._taken = 0
        self._returned = torch.zeros(0)
        """Samples that `give_back` returned, at the rate of `take`."""
        self.ended = False
        """Whether no samples follow."""
        self.empty = False
        """Whether all samples were taken and none follow."""
        self._is_flushed = False
        """Whether the resampler has given its last samples."""

    @property
    def queued(self) -> int:
        """Samples, at the rate of the source, that wait to be taken."""
        return self._pushed - self._taken + int(len(self._returned) * self.ratio)

    @property
    def seconds(self) -> float:
        """Length of all samples that were pushed."""
        return self._pushed / self._source_rate

    def push(self, samples: np.ndarray | torch.Tensor) -> None:
        """Add samples (N,) of one channel: int16, or floats from -1 to 1.

        Raises:
            ValueError: the samples have another shape or type, or the stream has ended.
        """
        if self.ended:
            raise ValueError(NEVER_MORE)

        piece = _checked_copy(samples)
        if len(piece):
            self._pieces.append(piece)
            self._pushed += len(piece)

    def take(self, count: int, least: int | None = None) -> torch.Tensor | None:
        """Take `count` of the queued samples, or fewer if fewer are queued.

        Never more, so that what a stream hears at once does not depend on the length of packets.

        Args:
            count: samples at the rate of the source.
            least: fewest samples that are taken; by default `count`.

        Returns:
            Resampled float32 samples on the scale of int16; None if fewer than `least` are queued.
            A stream that has ended gives its rest, once.
        """
        least = count if least is None else least
        # Read before the queue, because `push` and the end may come from another thread.
        ended = self.ended
        if self.empty or (self.queued < least and not ended):
            return None

        returned, self._returned = self._returned, self._returned[:0]
        pieces = [torch.zeros(0)]
        missing = max(0, count - int(len(returned) * self.ratio))
        while missing and self._pieces:
            piece = self._pieces.popleft()
            if len(piece) > missing:
                self._pieces.appendleft(piece[missing:])
                piece = piece[:missing]
            pieces.append(piece.float())
            missing -= len(piece)
            self._taken += len(piece)

        self.empty = ended and not self._pieces
        if self._is_flushed:
            return returned
        self._is_flushed = self.empty
        return torch.cat((returned, self._resampler.accept(torch.cat(pieces), last=self.empty)))

    def give_back(self, samples: torch.Tensor) -> None:
        """Return samples that `take` gave last; the next `take` begins with them."""
        self._returned = torch.cat((samples.clone(), self._returned))
        self.empty = self.empty and not len(self._returned)


def _checked_copy(samples: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Check samples, and return a copy: int16, or float32 on the scale of int16."""
    try:
        if isinstance(samples, torch.Tensor):
            waveform = samples.detach().cpu().clone()
        else:
            waveform = torch.from_numpy(np.array(samples))
    except TypeError:
        raise ValueError(f"samples: expected {KINDS}; found {np.asarray(samples).dtype}") from None

    if waveform.dim() != 1:
        raise ValueError(f"samples: expected one channel (N,), found shape {tuple(waveform.shape)}")

    if waveform.is_floating_point():
        waveform = waveform.float() * INT16_SCALE
        if not bool(torch.isfinite(waveform).all()):
            raise ValueError("samples: not all are numbers")
    elif waveform.dtype != torch.int16:
        raise ValueError(f"samples: expected {KINDS}; found {waveform.dtype}")

    return waveform


class StreamFeatures:
    """Computes each feature frame when its last sample arrives.

    The frames are those of the whole waveform.
    """

    def __init__(
        self, conf: DatasetConf, compute: Callable[[str, torch.Tensor, int], Example | None]
    ) -> None:
        """Begin without samples.

        Args:
            compute: Transcriber.features of the same `conf`: features of a waveform.
        """
        self._frame = frame_count(conf)
        """Length and shift of a frame in samples."""
        self._compute = compute
        self.dim = conf.feature_dim
        self._samples = torch.zeros(0)
        """Samples of the frames to come."""

    def missing_samples(self, frames: int) -> int:
        """Return the number of samples that complete the next `frames` frames."""
        return (frames - 1) * self._frame.shift + self._frame.window - len(self._samples)

    def accept(self, samples: torch.Tensor) -> torch.Tensor | None:
        """Add samples (N,), float32 on the scale of int16.

        Returns:
            features (1, T, F) of the frames that are complete now; None if no frame is.
        """
        samples = torch.cat((self._samples, samples))
        frames = int(self._frame(len(samples)))
        self._samples = samples[frames * self._frame.shift :].clone()
        if not frames:
            return None

        used = samples[: (frames - 1) * self._frame.shift + self._frame.window]
        example = self._compute("", used, self._frame.sample_rate)
        assert example is not None, "the samples make frames"
        assert example.feats is not None, "the chain computes features"

        return example.feats.unsqueeze(0)
