"""Sums over utterances, and the reported means that are computed from these sums."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from wenet_uio.dataset.types import Batch


def count_batches(batches: Sequence[Batch]) -> dict[str, float]:
    """Count utterances, texts without audio, tokens, audio seconds and frames of micro-batches."""
    return {
        "utterances": sum(len(batch) for batch in batches),
        "texts": sum(len(batch) for batch in batches if batch.text_only),
        "tokens": sum(_predicted_tokens(batch) for batch in batches),
        "seconds": sum(batch.seconds for batch in batches),
        "frames": sum(int(batch.feats_lengths.sum()) for batch in batches),
        "padded_frames": sum(batch.feats.shape[0] * batch.feats.shape[1] for batch in batches),
    }


def cost_bin(batch: Batch) -> int:
    """Return the histogram bin n of the padded frames of a batch: 2^(n/8) <= frames < 2^((n+1)/8).

    For text without audio, padded tokens take the place of frames.
    """
    cost = batch.target.numel() if batch.text_only else batch.feats.shape[0] * batch.feats.shape[1]
    return int(8 * math.log2(max(cost, 1)))


def loss_sums(
    losses: Mapping[str, Any], batch: Batch, names: Sequence[str], of_tokens: Collection[str]
) -> torch.Tensor:
    """Turn the mean losses of a batch into sums over its utterances.

    Args:
        losses: means; a loss that text without audio does not have is None or absent, and counts 0.
        names: losses to return.
        of_tokens: names of losses that are means over tokens; they become sums over tokens.

    Returns:
        (names,) float64 on the device of the losses.
    """
    if not len(batch):
        return torch.zeros(len(names), dtype=torch.float64, device=losses["loss"].device)

    zero = losses["loss"].new_zeros(())
    sums: list[torch.Tensor] = []
    for name in names:
        value = losses.get(name)
        mean = (zero if value is None else value).detach().to(torch.float64)
        # A tensor of these numbers would have to be copied to the device, for which the host waits.
        number = _predicted_tokens(batch) if name in of_tokens else len(batch)
        sums.append(mean * number)

    return torch.stack(sums)


def _predicted_tokens(batch: Batch) -> int:
    """Return tokens that the decoder predicts: the labels and an end token for each utterance."""
    return int(batch.target_lengths.sum()) + len(batch)


TRAINING_LOSSES = ("loss_cr",)
"""Losses that validation does not have: it has one view of each utterance."""
AUDIO_LOSSES = tuple(
    f"loss_{name}" for name in ("ctc", "interctc", "cr", "rnnt", "full", "chunk", "ctl")
)
"""Losses that text without audio does not have."""


class Totals:
    """Sums over steps and ranks, by name.

    The names are those of `count_batches` and of the losses, and two times that are summed over the ranks:
    `wait` (seconds of waiting for data) and `elapsed` (seconds of training).
    """

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self.sums: dict[str, float] = dict(sums or {})

    def add(self, sums: Mapping[str, float]) -> None:
        """Add the sums of a step."""
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def losses(self) -> dict[str, float]:
        """Return losses as means over utterances, and the accuracy as a mean over tokens.

        Empty without utterances, as of steps that were all skipped.
        """
        if not self.sums.get("utterances"):
            return {}

        with_audio = self.sums["utterances"] - self.sums.get("texts", 0.0)
        means: dict[str, float] = {}
        for name, value in self.sums.items():
            if name == "th_accuracy":
                count = self.sums["tokens"]
            elif name in AUDIO_LOSSES:
                count = with_audio
            elif name.startswith("loss"):
                count = self.sums["utterances"]
            else:
                continue  # a count or a time
            means[name] = value / max(count, 1)

        return means

    def throughput(self, ranks: int) -> dict[str, float]:
        """Return audio seconds per second of all ranks, and shares of data waiting and padding.

        Empty if nothing was computed.
        """
        if "elapsed" not in self.sums:
            return {}

        elapsed = max(self.sums["elapsed"], 1e-9)
        padded_frames = max(self.sums.get("padded_frames", 0.0), 1)
        return {
            "audio_seconds_per_second": self.sums.get("seconds", 0.0) * ranks / elapsed,
            "data_wait": self.sums.get("wait", 0.0) / elapsed,
            "padding": 1 - self.sums.get("frames", 0.0) / padded_frames,
        }
