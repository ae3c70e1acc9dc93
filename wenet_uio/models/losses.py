"""The weights of the losses, and the loss of the decoder: cross entropy against smoothed labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from wenet_uio.config import Config


@dataclass(frozen=True)
class LossWeights:
    """Weights that every family has. They stand at the top level of the yaml, beside model_conf,
    because WeNet has no such keys.
    """

    text: float = 1.0
    """Of the decoder's loss on text without audio."""
    views: float = 0.0
    """Of the divergence between two views, after its warm-up."""
    inter_ctc: float = 0.0
    """Share of the CTC loss of blocks in the middle of the encoder."""
    ctc_smoothing: float = 0.0
    """Share of the CTC loss that pulls the posteriors towards the uniform distribution."""

    ctc_detach_steps: int = 0
    """Steps in which the gradient of CTC does not reach the encoder."""

    @classmethod
    def of(cls, config: Config) -> LossWeights:
        """Read the weights of a config."""
        return cls(
            text=config.text_weight,
            views=config.cr_loss_scale,
            inter_ctc=config.interctc_weight if config.interctc_layer_idx else 0.0,
            ctc_smoothing=config.ctc_label_smoothing,
            ctc_detach_steps=config.ctc_detach_steps or 0,
        )


class LabelSmoothingLoss(nn.Module):
    """Kullback-Leibler divergence between smoothed labels and predictions (Szegedy et al. 2016).

    A smoothed label has probability c = 1 - smoothing at the label and s = smoothing / (V - 1) at
    each other token. The divergence is c log c + smoothing log s - (c log p(label) + s * sum of log
    p over the other tokens), so the smoothed labels need no tensor of their own.
    """

    def __init__(
        self, vocab_size: int, ignore_id: int, smoothing: float, normalize_length: bool
    ) -> None:
        super().__init__()
        self.ignore_id = ignore_id
        self.confidence = 1.0 - smoothing
        self.spread = smoothing / (vocab_size - 1)
        self.constant = self.confidence * math.log(self.confidence)
        if smoothing > 0.0:
            self.constant += smoothing * math.log(self.spread)

        self.normalize_length = normalize_length

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch: the sum over tokens divided by the number of utterances, or
        of tokens.

        Args:
            logits: (B, U, V).
            target: (B, U) padded with ignore_id.

        Returns:
            0-d tensor.
        """
        valid = target != self.ignore_id
        log_probs = logits.float().log_softmax(dim=2)
        labels = target.masked_fill(~valid, 0).unsqueeze(2)
        label_log_probs = log_probs.gather(2, labels).squeeze(2)  # (B, U)

        # c log p(label) + s * (sum of all log p - log p(label)), subtracted from the constant.
        loss = self.constant - (self.confidence - self.spread) * label_log_probs
        if self.spread > 0.0:
            loss = loss - self.spread * log_probs.sum(dim=2)

        total = loss.masked_fill(~valid, 0.0).sum()
        if self.normalize_length:
            return total / valid.sum().clamp(min=1)
        return total / target.size(0)
