"""The recogniser: an encoder with CTC and an attention decoder, trained together."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config.model import HybridConf
from wenet_uio.models.decoder import BiTransformerDecoder, TransformerDecoder, reversed_hypotheses
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.losses import LossWeights
from wenet_uio.models.masks import length_mask, selected_frames
from wenet_uio.models.speech_model import SpeechModel, Vocabulary
from wenet_uio.models.trainable_model import Losses, TrainableModel


class ASRModel(TrainableModel):
    """Hybrid model with CTC and attention (Watanabe et al. 2017; U2, Zhang et al. 2020)."""

    decoder: TransformerDecoder | BiTransformerDecoder

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder | BiTransformerDecoder,
        vocabulary: Vocabulary,
        conf: HybridConf,
        weights: LossWeights = LossWeights(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(encoder, decoder, vocabulary, conf, weights)
        self.reverse_weight = conf.reverse_weight
        self.skips_blanks = conf.skips_blanks

    def loss_weights(self, cr_weight: float | None = None) -> dict[str, float]:
        """Return {name of a loss: its weight in `loss`}; the attention decoder comes first."""
        return {"loss_att": self.attention_weight, **super().loss_weights(cr_weight)}

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the values of `forward` that are not None: `loss`, then the losses with a weight
        above 0.
        """
        names = ["loss"]
        names += [name for name, weight in self.loss_weights().items() if weight > 0.0]
        if self.attention_weight > 0.0:
            names.append("th_accuracy")
        return tuple(names)

    @property
    def idle_modules(self) -> list[nn.Module]:
        """Modules that do not influence the loss, because their weights in it are 0."""
        idle: list[nn.Module] = []
        if self.ctc_weight == 0:
            idle.append(self.ctc)

        if self.attention_weight == 0:
            idle.append(self.decoder)
        elif self.reverse_weight == 0 and isinstance(self.decoder, BiTransformerDecoder):
            idle.append(self.decoder.right_decoder)

        return idle

    @property
    def most_labels(self) -> int | None:
        """Most labels of an utterance that the trained decoder has positions for; None: any number."""
        if self.decoder.max_tokens is None or self.attention_weight == 0:
            return None
        return self.decoder.max_tokens - self.prompt_length

    @property
    def prompt_length(self) -> int:
        """Tokens of the decoder before the text of a training utterance."""
        return 1

    @property
    def trained_weights(self) -> dict[str, float]:
        """{name in model_conf: weight} of the losses of CTC and of the attention decoder."""
        return {**super().trained_weights, "attention_weight": self.attention_weight}

    def _losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
        cr_weight: float | None = None,
    ) -> Losses:
        """Return the losses of CTC and of the attention decoder, for encoder_out (B, T', D) and lengths
        (B,).
        """
        loss_att = th_accuracy = None
        loss, ctc_losses = self._ctc_losses(encoder_out, lengths, target, target_lengths, cr_weight)
        if self.attention_weight > 0.0:
            memory, memory_lengths = self.decoder_frames(encoder_out, lengths)
            loss_att, th_accuracy = self._attention_loss(
                memory, memory_lengths, target, target_lengths, prompts
            )
            loss = loss + self.attention_weight * loss_att

        return {"loss": loss, "loss_att": loss_att, **ctc_losses, "th_accuracy": th_accuracy}

    def _text_loss(
        self, target: torch.Tensor, target_lengths: torch.Tensor, prompts: torch.Tensor
    ) -> Losses:
        """Return losses of text without audio: the decoder attends to one frame of zeros."""
        width = self.encoder.traits.output_size
        zeros = self.ctc.ctc_lo.weight.new_zeros(len(target), 1, width)
        lengths = torch.ones_like(target_lengths)
        loss_att, accuracy = self._attention_loss(zeros, lengths, target, target_lengths, prompts)
        loss = self.weights.text * loss_att

        return {"loss": loss, "loss_att": loss_att, "loss_ctc": None, "th_accuracy": accuracy}

    def _attention_loss(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of the decoder, and the share of tokens that the left-to-right decoder
        predicts correctly.

        Args:
            encoder_out: (B, T', D).
            lengths: (B,) frames.
            target: (B, U) labels, padded with ignore_id.
            target_lengths: (B,).
            prompts: (B, P) tokens before the labels, such as sos.
        """
        lengths = lengths.to(target.device, non_blocking=True)
        target_lengths = target_lengths.to(target.device, non_blocking=True)

        # Prompt and labels (B, P + U), with eos in place of padding.
        valid = target != self.ignore_id
        tokens = torch.cat((prompts, target.masked_fill(~valid, self.eos)), dim=1)
        token_lengths = target_lengths + prompts.size(1)
        backward = reversed_hypotheses(tokens, token_lengths, self.eos)

        memory_mask = self.memory_mask(lengths, encoder_out.size(1))
        forward_logits, backward_logits = self.decoder(
            encoder_out, memory_mask, tokens, token_lengths, backward, self.reverse_weight
        )
        labels = self._next_tokens(tokens, token_lengths)
        loss = self.attention_loss(forward_logits, labels)

        # Without a right-to-left decoder, or if its weight is 0, these logits are zeros (1,).
        if backward_logits.dim() == 3:
            backward_labels = self._next_tokens(backward, token_lengths)
            reverse_loss = self.attention_loss(backward_logits, backward_labels)
            loss = (1.0 - self.reverse_weight) * loss + self.reverse_weight * reverse_loss

        is_token = labels != self.ignore_id
        is_correct = (forward_logits.detach().argmax(dim=2) == labels) & is_token
        return loss, is_correct.sum() / is_token.sum().clamp(min=1)

    def memory_mask(self, lengths: torch.Tensor, size: int) -> torch.Tensor:
        """Return which of `size` encoder frames the decoder attends to in training, (B, 1, size)
        bool, or terms of its scores; `lengths` (B,) are those of the frames.
        """
        return length_mask(lengths, size).unsqueeze(1)

    def _next_tokens(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the token after each token: `sos a b` (B, U) -> `a b eos`, padded with ignore_id."""
        shifted = pad(tokens[:, 1:], (0, 1), value=self.eos)
        return shifted.masked_fill(~length_mask(lengths, tokens.size(1)), self.ignore_id)

    def decoder_frames(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return frames that the decoder sees in training and rescoring: all, or with
        `skips_blanks` those without blank.

        Args:
            encoder_out: (B, T', D).
            lengths: (B,) frames.

        Returns:
            Frames (B, T'', D) and lengths (B,). An utterance without such frames has one frame of
            zeros.
        """
        if not self.skips_blanks:
            return encoder_out, lengths

        with torch.no_grad():
            labels = self.ctc.log_softmax(encoder_out).argmax(dim=2)  # (B, T')

        is_frame = length_mask(lengths.to(labels.device, non_blocking=True), encoder_out.size(1))
        kept = (labels != self.blank) & is_frame
        # In training, an accelerator computes on padding rather than let the host wait for the
        # largest count.
        in_full_length = self.training and encoder_out.device.type != "cpu"
        frames, counts = selected_frames(encoder_out, kept, in_full_length)
        return frames, counts.clamp(min=1)

    def forward_attention_decoder(
        self,
        hyps: torch.Tensor,
        hyps_lens: torch.Tensor,
        encoder_out: torch.Tensor,
        reverse_weight: float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities of the hypotheses of one utterance; see
        Decoder.score_hypotheses.
        """
        return self.decoder.score_hypotheses(hyps, hyps_lens, encoder_out, self.eos, reverse_weight)


def with_attention(model: SpeechModel) -> ASRModel:
    """Return the model if it has an attention decoder.

    Raises:
        ValueError: it has none.
    """
    if not isinstance(model, ASRModel):
        raise ValueError(f"a model {model.family.name} has no attention decoder")
    return model
