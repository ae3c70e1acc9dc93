"""The transducer (RNN-T): an ASRModel with a predictor and a joint network."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from wenet_uio.config import Config
from wenet_uio.families.transducer import TRANSDUCER
from wenet_uio.families.transducer.conf import JointConf, PredictorConf, TransducerConf
from wenet_uio.families.transducer.joint import TransducerJoint
from wenet_uio.families.transducer.predictor import PREDICTORS
from wenet_uio.families.transducer.rnnt_loss import lattice_log_probs, rnnt_losses
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_decoder
from wenet_uio.models.decoder import BiTransformerDecoder, TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.losses import LossWeights
from wenet_uio.models.speech_model import Vocabulary
from wenet_uio.models.trainable_model import Losses


class Transducer(ASRModel):
    """Transducer (Graves 2012, https://arxiv.org/abs/1211.3711), trained together with CTC and
    attention.

    Raises:
        ValueError: the widths in the config do not match, or hat_joint is used with another blank
            than 0.
    """

    family = TRANSDUCER

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder | BiTransformerDecoder,
        vocabulary: Vocabulary,
        config: Config,
    ) -> None:
        conf, predictor_conf, joint_conf = (
            config.model_conf,
            config.predictor_conf,
            config.joint_conf,
        )
        assert config.predictor is not None, "the family has a default"
        assert isinstance(conf, TransducerConf), "the family has this section"
        assert isinstance(predictor_conf, PredictorConf), "the family has this section"
        assert isinstance(joint_conf, JointConf), "the family has this section"
        super().__init__(encoder, decoder, vocabulary, conf, LossWeights.of(config))
        self.predictor = PREDICTORS[config.predictor](vocabulary.size, predictor_conf)
        self.joint = TransducerJoint(
            vocabulary.size, encoder.traits.output_size, predictor_conf.output_size, joint_conf
        )
        if joint_conf.hat_joint and vocabulary.blank != 0:
            raise ValueError(f"joint_conf.hat_joint needs ctc_blank_id 0, found {vocabulary.blank}")

        self.transducer_weight = conf.transducer_weight

    @property
    def trained_weights(self) -> dict[str, float]:
        """{name in model_conf: weight} of the losses of CTC, attention and transducer."""
        return {**super().trained_weights, "transducer_weight": self.transducer_weight}

    def loss_weights(self, cr_weight: float | None = None) -> dict[str, float]:
        """Return {name of a loss: its weight in `loss`}; attention, CTC, then the transducer."""
        others = super().loss_weights(cr_weight)
        weights = {"loss_att": others.pop("loss_att"), "loss_ctc": others.pop("loss_ctc")}
        weights["loss_rnnt"] = self.transducer_weight
        return weights | others

    def _losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
        cr_weight: float | None = None,
    ) -> Losses:
        """Return the losses of an ASRModel, `loss_rnnt`, and `loss` with its share."""
        losses = super()._losses(encoder_out, lengths, target, target_lengths, prompts, cr_weight)
        loss_rnnt = self.rnnt_loss(encoder_out, lengths, target, target_lengths)
        loss = losses["loss"]
        assert loss is not None

        return {**losses, "loss": loss + self.transducer_weight * loss_rnnt, "loss_rnnt": loss_rnnt}

    def _text_loss(
        self, target: torch.Tensor, target_lengths: torch.Tensor, prompts: torch.Tensor
    ) -> Losses:
        """Return losses of text without audio, which trains the attention decoder alone."""
        return {**super()._text_loss(target, target_lengths, prompts), "loss_rnnt": None}

    def rnnt_loss(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
    ) -> torch.Tensor:
        """Return the mean loss over utterances, 0-d. An utterance without frames has loss 0.
        Arguments as in CTC.forward.
        """
        target = target.masked_fill(target == self.ignore_id, self.blank)
        labels = pad(target, (1, 1), value=self.blank)  # (B, U + 2)
        predicted, _ = self.predictor(labels[:, :-1], self.predictor.start(len(labels)))

        # Blank and the next label, the units that can follow each label.
        blanks = torch.full_like(labels, self.blank)
        units = torch.stack((blanks, labels), dim=2)[:, 1:]  # (B, U + 1, 2)
        frames = lengths.clamp(min=1)
        log_probs = lattice_log_probs(
            self.joint, encoder_out, predicted, units, (frames, target_lengths)
        )
        losses = rnnt_losses(log_probs, frames, target_lengths)
        has_no_frames = (lengths == 0).to(losses.device, non_blocking=True)

        return losses.masked_fill(has_no_frames, 0.0).mean()


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> Transducer:
    """Build an untrained model; see Family.build."""
    decoder = build_decoder(config, encoder, vocabulary)
    return Transducer(encoder, decoder, vocabulary, config)
