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
    """Sum the frames of each token (integrate and fire).

    The weights are added up over time. Token n is the sum of the frames between n and n + 1 of the
    running sum, each times the part of its weight that lies there.

    Args:
        weights: (B, T), 0 or more.
        frames: (B, T, D).
        tokens: 0-d, number of tokens N; a tensor, so that a trace does not make it a constant.

    Returns:
        (B, N, D). The last tokens of an utterance with a smaller sum of weights are incomplete or
        zeros.
    """
    # Frame t covers the stretch begin[t] .. end[t] of the sum, token n the stretch n .. n + 1.
    end = weights.double().cumsum(dim=1).unsqueeze(1)  # (B, 1, T)
    begin = pad(end[:, :, :-1], (1, 0))  # (B, 1, T)
    # The stub of arange lacks tensors as numbers, which traces need.
    number: Any = tokens
    token = torch.arange(number, device=weights.device).double().view(1, -1, 1)  # (1, N, 1)

    # A share is the length of the overlap of a token and a frame.
    overlap_begin = torch.maximum(begin, token)
    overlap_end = torch.minimum(end, token + 1)
    shares = (overlap_end - overlap_begin).clamp(min=0)  # (B, N, T)
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
    sums = weights.double().cumsum(dim=1)  # (B, T)
    scale = counts / sums[:, -1].clamp(min=1e-9)
    scaled_sums = sums * scale.unsqueeze(1)
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
        conf = self.conf
        channels_first = frames.transpose(1, 2)  # (B, D, T)
        convolved = self.cif_conv1d(pad(channels_first, (conf.l_order, conf.r_order)))
        if conf.residual:
            convolved = convolved + channels_first

        hidden = self.dropout(convolved).transpose(1, 2).relu()  # (B, T, D)
        score = self.cif_output(hidden).squeeze(2).float().sigmoid()  # (B, T)
        weights = (score * conf.smooth_factor - conf.noise_threshold).relu()
        return weights.masked_fill(~valid, 0.0)


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
            counts: (B,) true numbers of tokens in training; None: predict them. In training, both
                `counts` and `lengths` should be on the CPU.
        """
        valid = length_mask(lengths.to(frames.device, non_blocking=True), frames.size(1))  # (B, T')
        weights = self.weigh_frames(frames, valid)
        time_weights = self.weigh_steps(frames, valid, lengths)
        sums = weights.sum(dim=1)

        if counts is None:
            embeds, counts, weights = self.find(frames, weights, lengths)
        else:
            # Scaled to the true number of tokens, so that each label has its vector.
            most_tokens = counts.max().clamp(min=1)
            counts = counts.to(frames.device, non_blocking=True)
            scale = counts / sums.clamp(min=1e-9)
            weights = weights * scale.unsqueeze(1)
            embeds = fire(weights, frames, most_tokens)

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
        """Find the tokens of utterances; the sum of the weights says how many there are.

        Args:
            frames: (B, T', D).
            weights: (B, T').
            lengths: (B,) frames.

        Returns:
            Vectors (B, N, D) of the tokens, the number of tokens (B,), and weights (B, T' + 1) with
            that of one more frame.
        """
        # A frame of zeros after the last one may complete the last token.
        frames = pad(frames, (0, 0, 0, 1))
        weights = pad(weights, (0, 1))
        frame_number = torch.arange(weights.size(1), device=weights.device).unsqueeze(0)
        is_tail = frame_number == lengths.unsqueeze(1)  # (B, T' + 1)
        weights = weights + self.conf.tail_threshold * is_tail

        counts = weights.double().sum(dim=1).floor().long()
        embeds = fire(weights, frames, counts.max().clamp(min=1))
        return embeds, counts, weights


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
        """Return weights (B, S T') of the S time steps in each encoder frame.

        Args:
            frames: (B, T', D).
            valid: (B, T') True within the lengths.
            lengths: (B,) frames.
        """
        steps = self.tp_upsample_cnn(frames.transpose(1, 2)).transpose(1, 2)  # (B, S T', D)
        if self.masks_padding:
            # Packing wants the longest utterance first. The order is made here: with its own,
            # pad_packed_sequence copies it back to the host, which waits for it.
            counts, order = (lengths * self.steps).clamp(min=1).cpu().sort(descending=True)
            original_order = order.argsort().to(steps.device, non_blocking=True)
            sorted_steps = steps[order.to(steps.device, non_blocking=True)]
            packed, _ = self.tp_blstm(pack_padded_sequence(sorted_steps, counts, batch_first=True))
            hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=steps.size(1))
            hidden = hidden[original_order]  # (B, S T', 2 D)
        else:
            hidden, _ = self.tp_blstm(steps)

        score = self.tp_output(hidden).squeeze(2).float().sigmoid()  # (B, S T')
        weights = (score * self.conf.smooth_factor2 - self.conf.noise_threshold2).relu()
        is_step = valid.repeat_interleave(self.steps, dim=1)
        return weights.masked_fill(~is_step, 0.0)
