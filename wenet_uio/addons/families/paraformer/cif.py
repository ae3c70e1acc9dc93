"""Continuous integrate-and-fire (CIF, Dong and Xu 2020): encoder frames -> one vector for each
token.

Each frame has a weight. Weights are summed over time, and the frames between two whole numbers of
the sum make a token: token n is the sum of its frames, each times the part of its weight that lies
between n and n + 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from wenet_uio.addons.families.paraformer.conf import CifPredictorConf, ParaformerPredictorConf
from wenet_uio.models.dropout import Dropout
from wenet_uio.models.masks import length_mask

FULL = 1e-4
"""A token counts as complete in the search for times if its weight is above 1 - FULL, as in
WeNet."""


class Prediction(NamedTuple):
    """What a predictor finds in B utterances."""

    embeds: torch.Tensor
    """(B, N, D) vectors of the tokens, for the decoder."""
    weight_sums: torch.Tensor
    """(B,) sums of the weights of the frames, before they are scaled to the number of the true
    tokens."""
    counts: torch.Tensor
    """(B,) int64, numbers of tokens."""
    weights: torch.Tensor
    """(B, T' + 1) weights of the frames, or (B, T') with the number of tokens given."""
    time_weights: torch.Tensor | None
    """(B, 3 T') weights of the branch that finds times; None without this branch."""


def fire(weights: torch.Tensor, frames: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Sum the frames of each token.

    Args:
        weights: (B, T), 0 or more.
        frames: (B, T, D).
        tokens: 0-d, number of tokens N; a tensor, so that a trace does not make it a constant.

    Returns:
        (B, N, D). The last tokens of an utterance with a smaller sum of weights are incomplete or
        zeros.
    """
    # Frame t covers the stretch begin[t] .. end[t] of the sum, token n the stretch n .. n + 1; a
    # share is the length of their overlap.
    end = weights.double().cumsum(dim=1).unsqueeze(1)
    begin = pad(end[:, :, :-1], (1, 0))
    # The stub of arange lacks tensors as numbers, which traces need.
    number: Any = tokens
    token = torch.arange(number, device=weights.device).double().view(1, -1, 1)
    shares = (torch.minimum(end, token + 1) - torch.maximum(begin, token)).clamp(min=0)

    return torch.matmul(shares.to(frames.dtype), frames)


def firing_times(weights: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return the time steps at which tokens become complete.

    Args:
        weights: (B, T); they are scaled so that their sum is the number of tokens.
        counts: (B,) numbers of tokens.

    Returns:
        (B, N) int64 time steps for the largest number N; values beyond an utterance's number are
        arbitrary.
    """
    sums = weights.double().cumsum(dim=1)
    scaled_sums = sums * (counts / sums[:, -1].clamp(min=1e-9)).unsqueeze(1)
    most_tokens = int(counts.max()) if len(counts) else 0
    numbers = torch.arange(1, most_tokens + 1, device=weights.device, dtype=torch.float64)

    # Token n is complete in the first step whose sum is n, or just below it after rounding.
    thresholds = (numbers * (1 - FULL)).expand(len(counts), -1)
    steps = torch.searchsorted(scaled_sums.contiguous(), thresholds.contiguous())

    return steps.clamp(max=weights.size(1) - 1)


class Cif(nn.Module):
    """Weights of the frames."""

    def __init__(self, dim: int, conf: CifPredictorConf) -> None:
        super().__init__()
        kernel = conf.l_order + 1 + conf.r_order
        self.cif_conv1d = nn.Conv1d(dim, dim, kernel, groups=conf.cnn_groups or dim)
        self.cif_output = nn.Linear(dim, 1)
        self.dropout = Dropout(conf.dropout)
        self.conf = conf

    def forward(self, frames: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return weights (B, T) of frames (B, T, D); `valid` (B, T) is True within the lengths."""
        conf, channels_first = self.conf, frames.transpose(1, 2)
        convolved = self.cif_conv1d(pad(channels_first, (conf.l_order, conf.r_order)))
        if conf.residual:
            convolved = convolved + channels_first

        hidden = self.dropout(convolved).transpose(1, 2).relu()
        score = self.cif_output(hidden).squeeze(2).float().sigmoid()
        return (score * conf.smooth_factor - conf.noise_threshold).relu().masked_fill(~valid, 0.0)


class CifPredictor(Cif):
    """Finds the number of tokens and the vector of each.

    `masks_padding`: the result for an utterance does not depend on its batch; False: as in WeNet,
    it does.
    """

    def __init__(self, dim: int, conf: CifPredictorConf) -> None:
        super().__init__(dim, conf)
        self.masks_padding = True

    def forward(
        self, frames: torch.Tensor, lengths: torch.Tensor, counts: torch.Tensor | None = None
    ) -> Prediction:
        """Predict the tokens of a batch.

        Args:
            frames: (B, T', D) encoder frames, zeros beyond the lengths.
            lengths: (B,) frames.
            counts: (B,) true numbers of tokens in training, which should be on the CPU as then
                `lengths`; None: predict them.
        """
        valid = length_mask(lengths.to(frames.device, non_blocking=True), frames.size(1))
        weights = self.weigh_frames(frames, valid)
        time_weights = self.weigh_steps(frames, valid, lengths)
        sums = weights.sum(dim=1)

        if counts is None:
            embeds, counts, weights = self.find(frames, weights, lengths)
        else:
            # Scaled to the true number of tokens, so that each label has its vector.
            most, counts = counts.max().clamp(min=1), counts.to(frames.device, non_blocking=True)
            weights = weights * (counts / sums.clamp(min=1e-9)).unsqueeze(1)
            embeds = fire(weights, frames, most)

        return Prediction(embeds, sums, counts, weights, time_weights)

    def weigh_frames(self, frames: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return weights (B, T') of the frames; `valid` (B, T') is True within the lengths."""
        return super().forward(frames, valid)

    def weigh_steps(
        self, frames: torch.Tensor, valid: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor | None:
        """Return weights of the time steps of the second branch; None without this branch."""
        return None

    def find(
        self, frames: torch.Tensor, weights: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Find the tokens of utterances.

        Args:
            frames: (B, T', D).
            weights: (B, T').
            lengths: (B,) frames.

        Returns:
            Vectors (B, N, D) of the tokens, the number of tokens (B,), and weights (B, T' + 1) with
            that of one more frame.
        """
        # A frame of zeros after the last one may complete the last token.
        weights, frames = pad(weights, (0, 1)), pad(frames, (0, 0, 0, 1))
        place = torch.arange(weights.size(1), device=weights.device).unsqueeze(0)
        weights = weights + self.conf.tail_threshold * (place == lengths.unsqueeze(1))
        counts = weights.double().sum(dim=1).floor().long()

        return fire(weights, frames, counts.max().clamp(min=1)), counts, weights


class ParaformerPredictor(CifPredictor):
    """CIF, and a second branch with `upsample_times` steps in each frame that finds the times of
    the tokens.
    """

    def __init__(self, dim: int, conf: ParaformerPredictorConf) -> None:
        nn.Module.__init__(self)
        self.masks_padding = True
        self.predictor = Cif(dim, conf)
        self.conf = conf
        self.steps = conf.upsample_times
        self.tp_upsample_cnn = nn.ConvTranspose1d(dim, dim, self.steps, self.steps)
        self.tp_blstm = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.tp_output = nn.Linear(2 * dim, 1)

    def weigh_frames(self, frames: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return weights (B, T') of the frames (B, T', D), of the first branch."""
        return self.predictor(frames, valid)

    def weigh_steps(
        self, frames: torch.Tensor, valid: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        """Return weights (B, 3 T') of the time steps."""
        steps = self.tp_upsample_cnn(frames.transpose(1, 2)).transpose(1, 2)
        if self.masks_padding:
            # The order is made here: with its own, pad_packed_sequence copies it back to the host,
            # which waits for it.
            counts, order = (lengths * self.steps).clamp(min=1).cpu().sort(descending=True)
            restored = order.argsort().to(steps.device, non_blocking=True)
            sorted_steps = steps[order.to(steps.device, non_blocking=True)]
            packed, _ = self.tp_blstm(pack_padded_sequence(sorted_steps, counts, batch_first=True))
            seen = pad_packed_sequence(packed, batch_first=True, total_length=steps.size(1))[0][
                restored
            ]
        else:
            seen, _ = self.tp_blstm(steps)

        score = self.tp_output(seen).squeeze(2).float().sigmoid()
        weights = (score * self.conf.smooth_factor2 - self.conf.noise_threshold2).relu()
        return weights.masked_fill(~valid.repeat_interleave(self.steps, dim=1), 0.0)
