"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import ctc_loss


class CTC(nn.Module):
    """Linear projection of encoder frames to the vocabulary, and the CTC loss."""

    def __init__(self, vocab_size: int, dim: int, blank: int) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(dim, vocab_size)
        self.blank = blank

    @torch.jit.unused
    def forward(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        """Mean loss over utterances, 0-d. An utterance with fewer frames than its labels need has loss 0.

        Args:
            encoder_out: (B, T, D).
            lengths: (B,) frames.
            target: (B, U) labels; values beyond target_lengths are ignored.
            target_lengths: (B,).
        """
        log_probs = self.ctc_lo(encoder_out).float().log_softmax(dim=2).transpose(0, 1)
        total = ctc_loss(
            log_probs, target, lengths, target_lengths, blank=self.blank, reduction="sum", zero_infinity=True
        )
        return total / encoder_out.size(0)

    @torch.jit.export
    def log_softmax(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Encoder frames (B, T, D) -> log-probabilities (B, T, V); `blank_penalty` is subtracted from blank's logit."""
        logits = self.ctc_lo(encoder_out)
        if blank_penalty > 0.0:
            logits[:, :, self.blank] -= blank_penalty
        return logits.log_softmax(dim=2)
