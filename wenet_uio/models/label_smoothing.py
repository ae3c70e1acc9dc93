"""Cross entropy against smoothed labels (Szegedy et al. 2016)."""

from __future__ import annotations

import math

import torch
from torch import nn


class LabelSmoothingLoss(nn.Module):
    """Kullback-Leibler divergence from labels of which `smoothing` is spread over the other tokens.

    With c = 1 - smoothing at the label and s = smoothing / (V - 1) at each other token, it is
    c log c + smoothing log s - (c log p(label) + s sum over the others of log p); no smoothed label is ever built.
    """

    def __init__(self, vocab_size: int, ignore_id: int, smoothing: float, normalize_length: bool) -> None:
        super().__init__()
        self.ignore_id = ignore_id
        self.confidence = 1.0 - smoothing
        self.spread = smoothing / (vocab_size - 1)
        self.constant = self.confidence * math.log(self.confidence)
        if smoothing > 0.0:
            self.constant += smoothing * math.log(self.spread)
        self.normalize_length = normalize_length

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Logits (B, U, V), target (B, U) padded with ignore_id -> 0-d: sum over tokens / utterances (or / tokens)."""
        valid = target != self.ignore_id
        log_probs = logits.float().log_softmax(dim=2)
        label = log_probs.gather(2, target.masked_fill(~valid, 0).unsqueeze(2)).squeeze(2)
        loss = self.constant - (self.confidence - self.spread) * label
        if self.spread > 0.0:
            loss = loss - self.spread * log_probs.sum(dim=2)
        total = loss.masked_fill(~valid, 0.0).sum()
        return total / (valid.sum().clamp(min=1) if self.normalize_length else target.size(0))
