"""Sums over utterances, and the means that are reported from them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch

from wenet_uio.dataset.types import Batch


def count(batches: Sequence[Batch]) -> dict[str, float]:
    """What there is in some micro-batches, by name."""
    return {
        "utterances": sum(len(batch) for batch in batches),
        "texts": sum(len(batch) for batch in batches if batch.text_only),
        "tokens": sum(_tokens(batch) for batch in batches),
        "seconds": sum(batch.seconds for batch in batches),
        "frames": sum(int(batch.feats_lengths.sum()) for batch in batches),
        "padded_frames": sum(batch.feats.shape[0] * batch.feats.shape[1] for batch in batches),
    }


def cost_bin(batch: Batch) -> int:
    """Of the batch's padded frames (padded tokens of text alone): n for what is from 2^(n/8) to 2^((n+1)/8)."""
    cost = batch.target.numel() if batch.text_only else batch.feats.shape[0] * batch.feats.shape[1]
    return int(8 * math.log2(max(cost, 1)))


def loss_sums(
    losses: Mapping[str, torch.Tensor], batch: Batch, names: Sequence[str], of_tokens: Collection[str]
) -> torch.Tensor:
    """(names,) float64 on the losses' device: means of a batch turned into sums over its utterances.

    Those named by `of_tokens` are means over tokens, and become sums over tokens.
    """
    if not len(batch):
        return torch.zeros(len(names), dtype=torch.float64, device=losses["loss"].device)
    weights = [_tokens(batch) if name in of_tokens else len(batch) for name in names]
    zero = losses["loss"].new_zeros(())  # of what text without audio has no loss of
    means = torch.stack([(zero if losses[name] is None else losses[name]).detach().to(torch.float64) for name in names])
    return means * torch.tensor(weights, dtype=torch.float64, device=means.device)


def _tokens(batch: Batch) -> int:
    """Tokens that the decoder predicts: the labels, and the end of each utterance."""
    return int(batch.target_lengths.sum()) + len(batch)


class Totals:
    """Sums over steps and ranks, by name.

    Beside what `count` and `loss_sums` give: `wait`, seconds that the ranks waited for data, and `elapsed`, seconds
    that they ran, both summed over the ranks.
    """

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self.sums: dict[str, float] = dict(sums or {})

    def add(self, sums: Mapping[str, float]) -> None:
        """Add those of a step."""
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def losses(self) -> dict[str, float]:
        """Mean losses over the utterances and mean accuracy over the tokens."""
        heard = self.sums["utterances"] - self.sums.get("texts", 0.0)
        counts = {"th_accuracy": self.sums["tokens"], "loss_ctc": heard, "loss_rnnt": heard}
        return {
            name: value / max(counts.get(name, self.sums["utterances"]), 1)
            for name, value in self.sums.items()
            if name.startswith("loss") or name == "th_accuracy"
        }

    def throughput(self, ranks: int) -> dict[str, float]:
        """Audio seconds that `ranks` ranks together did a second, share of time waiting, share of padding."""
        elapsed = max(self.sums.get("elapsed", 0.0), 1e-9)
        return {
            "audio_seconds_per_second": self.sums.get("seconds", 0.0) * ranks / elapsed,
            "data_wait": self.sums.get("wait", 0.0) / elapsed,
            "padding": 1 - self.sums.get("frames", 0.0) / max(self.sums.get("padded_frames", 0.0), 1),
        }
