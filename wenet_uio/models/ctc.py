"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import ctc_loss, kl_div, linear

from wenet_uio.models.masks import length_mask

UNUSED = -1e4
"""Bias of a unit that CTC does not use: its probability is 0 in any arithmetic, and fp16 can hold
it."""


class UsedUnits(NamedTuple):
    """The units that a CTC layer uses, as a vocabulary of their own."""

    units: torch.Tensor
    """(N,) ids, rising."""
    places: torch.Tensor
    """(V,) the place of each id in `units`, -1 of an unused one."""
    blank: int
    """The place of blank."""
    unused: torch.Tensor
    """(V,) bool on the host: the other ids."""


class CTC(nn.Module):
    """Linear projection of encoder frames to the vocabulary, and the CTC loss.

    The loss of a layer that does not use all units (`use_only`) is computed over those that it uses
    alone, which is the same loss for less work. Only the biases of the others say so, so that
    search, exports and checkpoints know of no other layer.
    """

    def __init__(self, vocab_size: int, dim: int, blank: int, smoothing: float = 0.0) -> None:
        """Create the projection.

        Args:
            smoothing: share of the loss that pulls the posteriors towards the uniform distribution,
                in training and validation.
        """
        super().__init__()
        self.ctc_lo = nn.Linear(dim, vocab_size)
        self.blank = blank
        self.smoothing = smoothing
        self.uses_all = True
        self._used: UsedUnits | None = None
        """What the first loss read from the biases; None before it, and if all units are used."""

    def use_only(self, units: Collection[int]) -> int:
        """Give all units but these and blank the probability 0.

        Units that were not used before begin as improbable as the least probable one that was.

        Returns:
            The number of units that were not used before.
        """
        bias = self.ctc_lo.bias  # (V,)
        is_used = torch.zeros(self.ctc_lo.out_features, dtype=torch.bool, device=bias.device)
        is_used[[self.blank, *units]] = True
        was_used = self._is_used()
        is_new = is_used & ~was_used
        with torch.no_grad():
            bias[is_new] = bias[was_used].min()
            bias[~is_used] = UNUSED

        self.learn_used()
        self._used = None  # the next loss reads the new biases
        return int(is_new.sum())

    def count_used(self) -> int:
        """Return the number of units beside blank that are used, as the biases tell."""
        return int(self._is_used().sum()) - 1

    def lacks_loss(self, target: torch.Tensor, target_lengths: torch.Tensor) -> torch.Tensor:
        """Tell which utterances have no loss, because they have a unit that is not used.

        The first loss of the layer reads from the biases which units are used. Before it, no
        utterance is told.

        Args:
            target: (B, U) labels on the host; values beyond target_lengths are ignored.
            target_lengths: (B,) on the host.

        Returns:
            (B,) bool.
        """
        if self._used is None:
            return torch.zeros(len(target), dtype=torch.bool)

        # Blank, which is always used, takes the place of padding.
        labelled = length_mask(target_lengths, target.size(1))
        labels = target.masked_fill(~labelled, self.blank)
        is_unused = self._used.unused[labels]  # (B, U)
        return is_unused.any(dim=1)

    def learn_used(self) -> None:
        """Compute losses over the used units alone, which the biases tell at the first loss, and
        again after other weights were loaded.
        """
        if self.uses_all:
            self.uses_all = False
            self.register_load_state_dict_post_hook(_forget_used)

    @torch.jit.unused
    def forward(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
    ) -> torch.Tensor:
        """Return the mean loss over utterances, 0-d. An utterance with fewer frames than its labels
        need, or with a unit that is not used, has loss 0.

        Args:
            encoder_out: (B, T, D).
            lengths: (B,) frames.
            target: (B, U) labels; values beyond target_lengths are ignored.
            target_lengths: (B,).
        """
        return self._loss(self._log_probs(encoder_out), lengths, target, target_lengths)

    @torch.jit.unused
    def losses_of_views(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the CTC loss, and the divergence between the posteriors of two augmented views of
        each utterance, 0-d each; arguments as in `forward`.

        Rows n and n + B / 2 are the views of utterance n.
        """
        log_probs = self._log_probs(encoder_out)
        loss = self._loss(log_probs, lengths, target, target_lengths)
        return loss, divergence_of_views(log_probs, lengths)

    def _log_probs(self, encoder_out: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of encoder frames (B, T, D): (B, T, V), or (B, T, N) if only N
        units are used.
        """
        used = self._used_units()
        if used is None:
            return self.ctc_lo(encoder_out).float().log_softmax(dim=2)

        weight, bias = self.ctc_lo.weight[used.units], self.ctc_lo.bias[used.units]
        return linear(encoder_out, weight, bias).float().log_softmax(dim=2)

    def _is_used(self) -> torch.Tensor:
        """Tell which labels are used, (V,) bool: the biases of the others are far below."""
        return self.ctc_lo.bias.detach() > UNUSED / 2

    def _used_units(self) -> UsedUnits | None:
        """Return the used units; None: all. They are read from the biases once for a device, because
        the host waits for the device.
        """
        if self.uses_all:
            return None

        if self._used is None or self._used.units.device != self.ctc_lo.bias.device:
            is_used = self._is_used()
            units = is_used.nonzero()[:, 0]
            places = torch.where(is_used, is_used.cumsum(0) - 1, -1)
            self._used = UsedUnits(units, places, int(places[self.blank]), ~is_used.cpu())

        return self._used

    def _loss(
        self,
        log_probs: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
    ) -> torch.Tensor:
        """Return the mean loss over utterances, 0-d, of log_probs (B, T, V), or (B, T, N) of the N used
        units; the other arguments are those of `forward`.
        """
        blank, is_known = self.blank, None
        used = self._used_units()
        if used is not None:
            # Labels become places among the used units, -1 of an unused one. Blank, which is used,
            # stands for padding.
            labelled = length_mask(target_lengths, target.size(1))
            target = used.places[target.masked_fill(~labelled, self.blank)]
            is_known = (target >= 0).all(dim=1)  # (B,): all units of the utterance are used
            blank, target = used.blank, target.clamp(min=0)

        losses = ctc_loss(
            log_probs.transpose(0, 1),
            target,
            lengths,
            target_lengths,
            blank=blank,
            reduction="none",
            zero_infinity=True,
        )
        if is_known is not None:
            losses = losses.masked_fill(~is_known, 0.0)

        total = losses.sum()
        if self.smoothing > 0.0:
            divergence = divergence_from_uniform(log_probs, lengths)
            total = (1.0 - self.smoothing) * total + self.smoothing * divergence

        return total / log_probs.size(0)

    @torch.jit.export
    def log_softmax(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Compute log-probabilities (B, T, V) of encoder frames (B, T, D); `blank_penalty` is
        subtracted from blank's logit; below 0 it makes blanks more probable.
        """
        logits = self.ctc_lo(encoder_out)
        if blank_penalty != 0.0:
            logits[:, :, self.blank] -= blank_penalty
        return logits.float().log_softmax(dim=2)


def _forget_used(ctc: CTC, _keys: object) -> None:
    """Let the used units be read again, from biases that were loaded."""
    ctc._used = None


def apply_blank_penalty(log_probs: torch.Tensor, blank: int, blank_penalty: float) -> torch.Tensor:
    """Return log-probabilities (B, T, V) as CTC.log_softmax gives them with this penalty."""
    if blank_penalty == 0.0:
        return log_probs

    logits = log_probs.clone()
    logits[:, :, blank] -= blank_penalty
    return logits.log_softmax(dim=2)


def divergence_from_uniform(log_probs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Sum over utterances and frames of the divergence of the posteriors from the uniform
    distribution, 0-d.

    Label smoothing of CTC (Kim et al. 2018, https://arxiv.org/abs/1711.02212).

    Args:
        log_probs: (B, T, V).
        lengths: (B,) frames.
    """
    # Of p from 1 / V: the sum of p log p - p log(1 / V).
    divergence = (log_probs.exp() * log_probs).sum(dim=2) + math.log(log_probs.size(2))  # (B, T)
    lengths = lengths.to(log_probs.device, non_blocking=True)
    valid = length_mask(lengths, log_probs.size(1))
    return divergence.masked_fill(~valid, 0.0).sum()


def divergence_of_views(log_probs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the mean over utterances of the divergence between the posteriors of two views, 0-d.

    CR-CTC (Yao et al. 2024, https://arxiv.org/abs/2410.05101, equation 4): half the sum, over
    frames and over both directions, of the Kullback-Leibler divergence from the posteriors of the
    other view, which get no gradient.

    Args:
        log_probs: (2 N, T, V); rows n and n + N are the views of utterance n.
        lengths: (2 N,) frames.
    """
    first, second = log_probs.detach().chunk(2)
    others = torch.cat((second, first))  # (2 N, T, V): of each row, its other view
    divergence = kl_div(log_probs, others, reduction="none", log_target=True).sum(dim=2)
    lengths = lengths.to(log_probs.device, non_blocking=True)
    valid = length_mask(lengths, log_probs.size(1))
    # The sum counts an utterance in both directions, and so does the number of rows.
    return divergence.masked_fill(~valid, 0.0).sum() / len(log_probs)


NO_CHUNKS = "interctc_conditioning feeds predictions between blocks, which chunks with caches do not; train without it"


class Intermediate(NamedTuple):
    """Frames after a block, normalised like the frames that leave the encoder."""

    frames: torch.Tensor
    """(B, T', D)."""
    lengths: torch.Tensor
    """(B,)."""


class InterCtc:
    """What an encoder does after some of its blocks.

    Training collects the frames there for a CTC loss (Lee and Watanabe 2021,
    https://arxiv.org/abs/2102.03216). With self-conditioning, the next block also sees the CTC
    posteriors of these frames (Nozaki and Komatsu 2021, https://arxiv.org/abs/2104.02724), in
    training and in decoding.

    This is no module: `ctc` belongs to the model, and `conditioning` to the encoder.
    """

    def __init__(self, blocks: Sequence[int], ctc: CTC, conditioning: nn.Linear | None) -> None:
        """Act after `blocks` (from 1)."""
        self.blocks, self.ctc, self.conditioning = tuple(blocks), ctc, conditioning

    def condition(self, frames: torch.Tensor) -> torch.Tensor:
        """Project the CTC posteriors of frames (B, T', D), to be added to the next block's input."""
        assert self.conditioning is not None, "the caller looks at `conditioning`"
        return self.conditioning(self.ctc.ctc_lo(frames).softmax(dim=2))

    def loss(
        self, between: Sequence[Intermediate], target: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean CTC loss of the frames `between` blocks, 0-d; target (B, U) are labels."""
        assert len(between) == len(self.blocks), "LayeredEncoder._block collects after every block"
        losses = [
            self.ctc(output.frames, output.lengths, target, target_lengths) for output in between
        ]
        return torch.stack(losses).mean()
