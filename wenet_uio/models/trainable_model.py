"""A model that trains: the losses of CTC, and the form of those that families add."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from wenet_uio.config.model import ModelKeys
from wenet_uio.models.clock import GradientGate
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.lengths import encode_for_training
from wenet_uio.models.losses import LabelSmoothingLoss, LossWeights
from wenet_uio.models.speech_model import SpeechModel, Vocabulary

Losses = dict[str, torch.Tensor | None]
"""{name: 0-d tensor, or None for a loss whose weight is 0}."""


class TrainableModel(SpeechModel):
    """A SpeechModel with losses; `attention_loss` is the loss of the decoder."""

    decoder: nn.Module

    def __init__(
        self,
        encoder: Encoder,
        decoder: nn.Module,
        vocabulary: Vocabulary,
        conf: ModelKeys,
        weights: LossWeights = LossWeights(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(encoder, decoder, vocabulary, conf, weights.ctc_smoothing)
        self.ignore_id = conf.ignore_id
        self.weights = weights
        if weights.ctc_detach_steps:
            self.ctc_gate = GradientGate(weights.ctc_detach_steps)
        self.attention_loss = LabelSmoothingLoss(
            vocabulary.size, conf.ignore_id, conf.lsm_weight, conf.length_normalized_loss
        )

    @property
    def most_labels(self) -> int | None:
        """Most labels of an utterance that the trained decoder has positions for; None: any number."""
        return None

    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor | None = None,
        cr_weight: float | None = None,
    ) -> Losses:
        """Compute the losses of a batch with at least one utterance.

        Args:
            feats: (B, T, F); T = 0 for text without audio, which trains the decoder as a language
                model.
            feats_lengths: (B,) frames; these and target_lengths should be on the CPU, beside
                features on any device.
            target: (B, U) padded with ignore_id.
            target_lengths: (B,).
            prompts: (B, P) tokens with which the decoder starts, of `prompts`; None: sos.
            cr_weight: rows n and n + B / 2 are augmented views of one utterance, and this is the
                weight of their divergence; None: each row is an utterance.

        Returns:
            0-d tensors, means over the utterances: `loss`, the sum with `loss_weights` of `loss_ctc`,
            `loss_att`, `loss_interctc` (blocks in the middle) and `loss_cr` (divergence of two
            views); and `th_accuracy`, the share of tokens that the decoder predicts correctly from
            the tokens before. A loss with weight 0 is None.
        """
        if prompts is None:
            prompts = target.new_full((len(target), 1), self.sos)
        if feats.size(1) == 0:
            return self._text_loss(target, target_lengths, prompts)

        encoder_out, lengths, between = encode_for_training(self, feats, feats_lengths)
        losses = self._losses(encoder_out, lengths, target, target_lengths, prompts, cr_weight)
        if self.encoder.inter_ctc is None:
            return losses

        # A CTC loss of the frames after blocks in the middle of the encoder.
        loss_interctc = self.encoder.inter_ctc.loss(between, target, target_lengths)
        loss = losses["loss"]
        assert loss is not None
        losses["loss"] = loss + self.weights.inter_ctc * self.ctc_weight * loss_interctc
        losses["loss_interctc"] = loss_interctc
        return losses

    def prompts(
        self, texts: Sequence[str], fields: Sequence[Mapping[str, Any]], keys: Sequence[str] = ()
    ) -> torch.Tensor | None:
        """Return the tokens with which the decoder starts, of utterances with these texts, fields
        and keys; None: sos.
        """
        return None

    def loss_weights(self, cr_weight: float | None = None) -> dict[str, float]:
        """Return {name of a loss: its weight in `loss`}.

        Args:
            cr_weight: weight of the divergence of two views; None: the weight after the warm-up.
        """
        inter_share = self.weights.inter_ctc
        if cr_weight is None:
            cr_weight = self.weights.views
        return {
            "loss_ctc": (1.0 - inter_share) * self.ctc_weight,
            "loss_interctc": inter_share * self.ctc_weight,
            "loss_cr": cr_weight,
        }

    def _ctc_losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        cr_weight: float | None,
    ) -> tuple[torch.Tensor, Losses]:
        """Return the weighted sum of the losses of the CTC layer, and these losses: `loss_ctc`, and
        with a `cr_weight` also `loss_cr`, the divergence of two views of each utterance.
        """
        loss = encoder_out.new_zeros((), dtype=torch.float32)
        if self.ctc_weight == 0.0:
            return loss, {"loss_ctc": None}

        if self.weights.ctc_detach_steps:  # at first, CTC does not train the encoder
            encoder_out = self.ctc_gate(encoder_out)

        weight = (1.0 - self.weights.inter_ctc) * self.ctc_weight
        if cr_weight is None:
            loss_ctc = self.ctc(encoder_out, lengths, target, target_lengths)
            return loss + weight * loss_ctc, {"loss_ctc": loss_ctc}

        loss_ctc, loss_cr = self.ctc.losses_of_views(encoder_out, lengths, target, target_lengths)
        loss = loss + weight * loss_ctc + cr_weight * loss_cr
        return loss, {"loss_ctc": loss_ctc, "loss_cr": loss_cr}

    @property
    @abstractmethod
    def loss_names(self) -> tuple[str, ...]:
        """Names of the values of `forward` that are not None: `loss`, then the losses with a weight
        above 0.
        """

    @property
    @abstractmethod
    def idle_modules(self) -> list[nn.Module]:
        """Modules that do not influence the loss, because their weights in it are 0."""

    @abstractmethod
    def _losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
        cr_weight: float | None = None,
    ) -> Losses:
        """Return the losses of `forward`, except that of blocks in the middle, for encoder_out (B, T',
        D) and lengths (B,).
        """

    @abstractmethod
    def _text_loss(
        self, target: torch.Tensor, target_lengths: torch.Tensor, prompts: torch.Tensor
    ) -> Losses:
        """Return losses of text without audio.

        Raises:
            ValueError: the family cannot train on it.
        """
