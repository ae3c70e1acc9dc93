"""Features of a waveform that arrives in parts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.frames import frame_count
from wenet_uio.dataset.types import Example


def features_obstacle(conf: DatasetConf) -> str:
    """Return the reason why features of parts differ from those of the whole waveform.

    Empty if they do not.
    """
    if any(operator.evaluation for operator in conf.operators):
        return "the train.yaml names operators, which need whole utterances"
    if conf.feats_type == "log_mel_spectrogram" or not frame_count(conf).snip_edges:
        return "its features need whole utterances (log_mel_spectrogram, or snip_edges: false)"
    return ""


class StreamFeatures:
    """Computes each feature frame when its last sample arrives.

    The frames are those of the whole waveform.
    """

    def __init__(
        self, conf: DatasetConf, compute: Callable[[str, torch.Tensor, int], Example | None]
    ) -> None:
        """`compute`: Transcriber.features of the same `conf`."""
        self._frame, self._compute = frame_count(conf), compute
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
