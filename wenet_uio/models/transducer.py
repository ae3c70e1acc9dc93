"""The transducer (RNN-T): an ASRModel with a predictor and a joint network."""

from __future__ import annotations

import torch
from torch.nn.functional import pad
from torchaudio.functional import rnnt_loss

from wenet_uio.config.transducer import TransducerConf
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.ctc import CTC
from wenet_uio.models.decoder import BiTransformerDecoder, TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.joint import TransducerJoint
from wenet_uio.models.predictor import Predictor


class Transducer(ASRModel):
    """Graves 2012, https://arxiv.org/abs/1211.3711, trained together with CTC and attention."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder | BiTransformerDecoder,
        ctc: CTC,
        vocab_size: int,
        sos: int,
        eos: int,
        conf: TransducerConf,
        predictor: Predictor,
        joint: TransducerJoint,
    ) -> None:
        super().__init__(encoder, decoder, ctc, vocab_size, sos, eos, conf)
        if joint.hat_joint and ctc.blank != 0:
            raise ValueError(f"joint_conf.hat_joint needs ctc_blank_id 0, found {ctc.blank}")
        self.predictor = predictor
        self.joint = joint
        self.transducer_weight = conf.transducer_weight

    def _losses(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor, target_lengths: torch.Tensor
    ) -> dict[str, torch.Tensor | None]:
        """As ASRModel._losses, with `loss_rnnt` in the sum."""
        losses = super()._losses(encoder_out, lengths, target, target_lengths)
        loss_rnnt = self.rnnt_loss(encoder_out, lengths, target, target_lengths)
        return {**losses, "loss": losses["loss"] + self.transducer_weight * loss_rnnt, "loss_rnnt": loss_rnnt}

    def _text_loss(self, target: torch.Tensor, target_lengths: torch.Tensor) -> dict[str, torch.Tensor | None]:
        """As ASRModel._text_loss: the attention decoder alone learns from text."""
        return {**super()._text_loss(target, target_lengths), "loss_rnnt": None}

    def rnnt_loss(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor, target: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        """Mean loss over utterances, 0-d; one without a frame counts 0. Arguments as those of CTC.forward."""
        # torchaudio wants the padding of a batch to be no longer than its longest utterance.
        frames, tokens = int(lengths.max().clamp(min=1)), int(target_lengths.max())
        labels = target[:, :tokens].masked_fill(target[:, :tokens] == self.ignore_id, self.blank)
        predicted, _ = self.predictor(pad(labels, (1, 0), value=self.blank), self.predictor.start(labels.size(0)))
        scores = self.joint(encoder_out[:, :frames].unsqueeze(2), predicted.unsqueeze(1)).float()
        losses = rnnt_loss(
            scores.contiguous(),
            labels.int().contiguous(),
            lengths.clamp(min=1).int(),
            target_lengths.int(),
            blank=self.blank,
            reduction="none",
        )
        return losses.masked_fill(lengths == 0, 0.0).mean()
