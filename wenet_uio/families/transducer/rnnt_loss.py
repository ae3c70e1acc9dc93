"""Transducer loss (Graves 2012, https://arxiv.org/abs/1211.3711) that never holds the scores of all
units at once.

A path through the lattice needs two scores at frame t after u labels: those of blank and of label u
+ 1. So the joint network runs on pieces of the batch; of each piece these two scores are kept, and
the backward pass computes the others again. The loss and its gradients are exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from wenet_uio.families.transducer.joint import TransducerJoint
from wenet_uio.models.layer_parts import recomputed

PIECE = 1 << 25
"""Scores of a piece, unless one frame of an utterance has more: 128 MB in fp32. The peak is up to
five times that."""


def rnnt_losses(
    log_probs: torch.Tensor, lengths: torch.Tensor, target_lengths: torch.Tensor
) -> torch.Tensor:
    """Return the negative log-probability of each utterance's labels, the sum over all paths; (B,)
    fp32.

    Args:
        log_probs: (B, T, U + 1, 2) of blank and of the next label, see `lattice_log_probs`; padding has any
            finite value.
        lengths: (B,) frames, at least 1.
        target_lengths: (B,) labels.
    """
    return _Paths.apply(log_probs, lengths, target_lengths)


def lattice_log_probs(
    joint: TransducerJoint,
    encoder_out: torch.Tensor,
    predicted: torch.Tensor,
    units: torch.Tensor,
    lengths: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Return log-probabilities (B, T, U + 1, 2) in fp32 of the two units that continue a path at
    each frame after each label.

    Args:
        encoder_out: (B, T, E).
        predicted: (B, U + 1, P), the predictor's output before each label and after the last.
        units: (B, U + 1, 2), blank and the next label.
        lengths: (B,) frames and (B,) labels. On the CPU they save the scores of padding.
    """
    frames, places = encoder_out.size(1), predicted.size(1)
    # A piece has whole utterances, or frames of one utterance if these alone have too many scores.
    frames_of_piece = max(1, PIECE // (places * joint.vocab_size))
    utterances = max(1, frames_of_piece // frames)
    parts_of_utterance = -(-frames // frames_of_piece)
    is_one_piece = encoder_out.size(0) * frames <= frames_of_piece

    groups = (tensor.split(utterances) for tensor in (encoder_out, predicted, units, *lengths))
    log_probs_of_groups: list[torch.Tensor] = []
    for encoded, before, following, num_frames, num_labels in zip(*groups, strict=True):
        longest = _longest(num_frames, frames)
        most = 1 + _longest(num_labels, places - 1)
        before, following = before[:, :most], following[:, :most]

        pieces: list[torch.Tensor] = []
        for piece in encoded[:, :longest].split(-(-frames // parts_of_utterance), dim=1):
            if is_one_piece:
                pieces.append(_piece_log_probs(joint, piece, before, following))
            else:
                pieces.append(recomputed(_piece_log_probs, joint, piece, before, following))

        # (N, longest, most, 2), with zeros up to (N, T, U + 1, 2)
        log_probs = torch.cat(pieces, dim=1)
        log_probs_of_groups.append(pad(log_probs, (0, 0, 0, places - most, 0, frames - longest)))

    return torch.cat(log_probs_of_groups)


def _longest(lengths: torch.Tensor, size: int) -> int:
    """Return the largest of `lengths` (N,); `size` if they are on an accelerator, where the host
    would wait for the number.
    """
    return int(lengths.max()) if lengths.device.type == "cpu" else size


def _piece_log_probs(
    joint: TransducerJoint, encoder_out: torch.Tensor, predicted: torch.Tensor, units: torch.Tensor
) -> torch.Tensor:
    """Compute the log-probabilities (N, T, U + 1, 2) of `lattice_log_probs` of one piece: frames
    (N, T, E), outputs of the predictor (N, U + 1, P) and units (N, U + 1, 2).
    """
    scores = joint(encoder_out.unsqueeze(2), predicted.unsqueeze(1))
    return _LogProbs.apply(scores, units.unsqueeze(1).expand(*scores.shape[:3], 2))


class _LogProbs(torch.autograd.Function):
    """log_softmax of scores (…, V) at `units` (…, 2), in fp32 at least; the gradient needs one
    tensor (…, V).
    """

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
        log_probs = scores.log_softmax(
            dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)
        )
        ctx.save_for_backward(log_probs, units)
        ctx.dtype = scores.dtype
        return log_probs.gather(-1, units)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        # d log_softmax(scores)[unit] / d scores[v] is (1 if v is the unit, else 0) - softmax[v].
        log_probs, units = ctx.saved_tensors
        grad_scores = log_probs.exp().mul_(-grad.sum(dim=-1, keepdim=True))
        return grad_scores.scatter_add_(-1, units, grad).to(ctx.dtype), None


class _Paths(torch.autograd.Function):
    """The negative log-probability of the labels of each utterance, see `rnnt_losses`.

    With C[t, u] the sum of the blanks before frame t after u labels, the paths that end in (t, u)
    have

        alpha[t, u] = C[t, u]
            + log sum over s <= t of exp(alpha[s, u - 1] + label[s, u - 1] - C[s, u])

    and so a scan over the frames gives all of a label's values. The paths that start in (t, u) have
    beta[t, u] in the same way. The sums are long differences: they are computed in fp64.
    """

    @staticmethod
    def forward(
        ctx: Any, log_probs: torch.Tensor, lengths: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        lengths = lengths.to(log_probs.device, non_blocking=True)
        target_lengths = target_lengths.to(log_probs.device, non_blocking=True)
        blank, label, ends = _lattice_arcs(
            log_probs.detach().double(), lengths, target_lengths
        )  # (U + 1, B, T + 1) each
        blank_sums = pad(blank[..., :-1].cumsum(dim=2), (1, 0))
        beta = _backward_log_probs(blank_sums, label, ends)
        total = beta[0, :, :1]  # (B, 1): all paths from the start

        if ctx.needs_input_grad[0]:
            alpha = _forward_log_probs(blank_sums, label)
            # Log-probabilities of the paths that use an arc, over that of all paths: (U + 1, B, T) of
            # the blanks and (U, B, T + 1) of the labels.
            by_blank = alpha[..., :-1] + blank[..., :-1] + beta[..., 1:] - total
            by_label = alpha[:-1] + label[:-1] + beta[1:] - total
            # The loss changes with each log-probability by minus the share of the paths that use
            # its arc.
            by_label = pad(by_label, (0, -1, 0, 0, 0, 1), value=-torch.inf)
            share_of_paths = torch.stack((by_blank, by_label), dim=-1).exp()
            ctx.save_for_backward(-share_of_paths.permute(1, 2, 0, 3).to(log_probs.dtype))

        return -total.squeeze(1).to(log_probs.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad.view(-1, 1, 1, 1), None, None


def _lattice_arcs(
    log_probs: torch.Tensor, lengths: torch.Tensor, target_lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of blank and of the next label at frame t after u labels, both (U +
    1, B, T + 1), from log_probs (B, T, U + 1, 2), and where the paths end, a bool of that shape.

    Padding has blanks 0 and labels -inf, so that no path goes through it.
    """
    one_frame_more = pad(log_probs, (0, 0, 0, 0, 0, 1))  # (B, T + 1, U + 1, 2)
    blank, label = one_frame_more.permute(3, 2, 0, 1).contiguous()
    frame = torch.arange(blank.size(2), device=blank.device)
    place = torch.arange(blank.size(0), device=blank.device).view(-1, 1, 1)
    lengths, target_lengths = lengths.view(1, -1, 1), target_lengths.view(1, -1, 1)
    within = frame < lengths
    blank = torch.where(within & (place <= target_lengths), blank, 0.0)
    label = torch.where(within & (place < target_lengths), label, -torch.inf)
    ends = (frame == lengths) & (place == target_lengths)

    return blank, label, ends


def _forward_log_probs(blank_sums: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the log-probability (U + 1, B, T + 1) of all paths from the start to each place of the
    lattice: alpha of `_Paths`.

    Args:
        blank_sums: (U + 1, B, T + 1), C of `_Paths`: blanks before frame t. A path that stays after
            u labels from frame s to frame t costs C[t, u] - C[s, u].
        label: (U + 1, B, T + 1), the next label at each place.
    """
    alpha = [blank_sums[0]]
    for label_arcs, sums in zip(label[:-1], blank_sums[1:], strict=True):
        # A path enters the row by a label at a frame s, and follows its blanks from s to t, which
        # costs C[t] - C[s]. The sum over s leaves C[t] out, as it is the same for all s.
        alpha.append((alpha[-1] + label_arcs - sums).logcumsumexp(dim=1) + sums)

    return torch.stack(alpha)


def _backward_log_probs(
    blank_sums: torch.Tensor, label: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Return the log-probability (U + 1, B, T + 1) of all paths from each place of the lattice to
    the end: beta of `_Paths`.

    Args:
        blank_sums: as in `_forward_log_probs`.
        label: as there.
        ends: (U + 1, B, T + 1) bool, where the paths end.
    """
    beta: list[torch.Tensor] = []
    next_row = torch.full_like(label[0], -torch.inf)
    rows = zip(blank_sums.flip(0), label.flip(0), ends.flip(0), strict=True)
    for sums, label_arcs, end in rows:
        # A path follows the blanks of the row from t to a frame s, which costs C[s] - C[t], and
        # leaves the row by a label, or ends. The sum over s >= t leaves C[t] out, as it is the same
        # for all s, and runs backwards from the last frame.
        exits = torch.where(end, 0.0, label_arcs + next_row) + sums
        next_row = exits.flip(1).logcumsumexp(dim=1).flip(1) - sums
        beta.append(next_row)

    return torch.stack(beta[::-1])
