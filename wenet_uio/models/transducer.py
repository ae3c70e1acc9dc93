"""The transducer (RNN-T): an ASRModel with a predictor and a joint network."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from wenet_uio.config.transducer import TransducerSections
from wenet_uio.models.asr_model import ASRModel, Losses, Vocabulary
from wenet_uio.models.decoder import BiTransformerDecoder, TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.joint import TransducerJoint
from wenet_uio.models.predictor import PREDICTORS


class Transducer(ASRModel):
    """Transducer (Graves 2012, https://arxiv.org/abs/1211.3711), trained together with CTC and attention.

    Raises:
        ValueError: the widths in `sections` do not match, or hat_joint is used with another blank than 0.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder | BiTransformerDecoder,
        vocabulary: Vocabulary,
        sections: TransducerSections,
    ) -> None:
        super().__init__(encoder, decoder, vocabulary, sections.model_conf)
        predictor_conf, joint_conf = sections.predictor_conf, sections.joint_conf
        self.predictor = PREDICTORS[sections.predictor](vocabulary.size, predictor_conf)
        self.joint = TransducerJoint(vocabulary.size, encoder.output_size, predictor_conf.output_size, joint_conf)
        if joint_conf.hat_joint and vocabulary.blank != 0:
            raise ValueError(f"joint_conf.hat_joint needs ctc_blank_id 0, found {vocabulary.blank}")
        self.transducer_weight = sections.model_conf.transducer_weight

    def _losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
        views: int = 1,
    ) -> Losses:
        """See ASRModel._losses; adds `loss_rnnt` and its share of `loss`."""
        losses = super()._losses(encoder_out, lengths, target, target_lengths, prompts, views)
        loss_rnnt = self.rnnt_loss(encoder_out, lengths, target, target_lengths)
        loss = losses["loss"]
        assert loss is not None
        return {**losses, "loss": loss + self.transducer_weight * loss_rnnt, "loss_rnnt": loss_rnnt}

    def _text_loss(self, target: torch.Tensor, target_lengths: torch.Tensor, prompts: torch.Tensor) -> Losses:
        """See ASRModel._text_loss; text without audio trains only the attention decoder."""
        return {**super()._text_loss(target, target_lengths, prompts), "loss_rnnt": None}

    def rnnt_loss(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        """Mean loss over utterances, 0-d. An utterance without frames has loss 0. Arguments as in CTC.forward."""
        from torchaudio.functional import rnnt_loss  # slow import, needed for this loss only

        # torchaudio requires that the padded length equals the length of the longest utterance.
        frames, tokens = int(lengths.max().clamp(min=1)), int(target_lengths.max())
        labels = target[:, :tokens].masked_fill(target[:, :tokens] == self.ignore_id, self.blank)
        predicted, _ = self.predictor(pad(labels, (1, 0), value=self.blank), self.predictor.start(labels.size(0)))
        scores = self.joint(encoder_out[:, :frames].unsqueeze(2), predicted.unsqueeze(1)).float()
        lengths, target_lengths = (each.to(target.device, non_blocking=True) for each in (lengths, target_lengths))
        losses = rnnt_loss(
            scores.contiguous(),
            labels.int().contiguous(),
            lengths.clamp(min=1).int(),
            target_lengths.int(),
            blank=self.blank,
            reduction="none",
        )
        return losses.masked_fill(lengths == 0, 0.0).mean()
