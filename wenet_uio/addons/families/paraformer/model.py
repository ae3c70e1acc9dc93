"""Paraformer (Gao et al. 2022): an encoder, a predictor of the tokens, and a decoder that scores
all tokens at once.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import l1_loss, pad

from wenet_uio.addons.encoders.sanm.encoder import (
    SHIFT,
    SanmEncoder,
    low_frame_lengths,
    low_frame_rate,
)
from wenet_uio.addons.families.paraformer import PARAFORMER
from wenet_uio.addons.families.paraformer.cif import (
    CifPredictor,
    ParaformerPredictor,
    Prediction,
    firing_times,
)
from wenet_uio.addons.families.paraformer.conf import (
    CifPredictorConf,
    ParaformerConf,
    ParaformerPredictorConf,
    SanmDecoderConf,
)
from wenet_uio.addons.families.paraformer.decoder import SanmDecoder
from wenet_uio.config import Config
from wenet_uio.models.build import check_heads
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.losses import LossWeights
from wenet_uio.models.masks import length_mask
from wenet_uio.models.speech_model import Vocabulary
from wenet_uio.models.trainable_model import Losses, TrainableModel


class Paraformer(TrainableModel):
    """Non-autoregressive model: https://arxiv.org/abs/2206.08317."""

    family = PARAFORMER
    decoder: SanmDecoder

    def __init__(
        self,
        encoder: SanmEncoder,
        decoder: SanmDecoder,
        predictor: CifPredictor,
        vocabulary: Vocabulary,
        conf: ParaformerConf,
        weights: LossWeights = LossWeights(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(encoder, decoder, vocabulary, conf, weights)
        encoder.embed.subsampling_rate = SHIFT  # of the encoder together with `inputs`
        self.predictor = predictor
        self.conf = conf
        self.parallel_weight = 1.0
        if conf.sampler:
            self.embed = nn.Embedding(vocabulary.size, encoder.traits.output_size)
            self.embed.requires_grad_(conf.sampling_ratio > 0)

    @property
    def has_trained_decoder(self) -> bool:
        """True: the decoder always influences the loss."""
        return True

    @property
    def idle_modules(self) -> list[nn.Module]:
        """Modules that do not influence the loss: CTC, if its weight is 0."""
        return [] if self.ctc_weight else [self.ctc]

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the losses that are not None; those of the quantity are of the numbers of tokens."""
        weights = self.loss_weights()
        ctc_names = [name for name in ("loss_ctc", "loss_cr") if weights[name] > 0.0]
        quantity_names = ["loss_quantity"]
        if isinstance(self.predictor, ParaformerPredictor):  # it has a second branch, for times
            quantity_names.append("loss_quantity_tp")
        return ("loss", "loss_decoder", "th_accuracy", *ctc_names, *quantity_names)

    def inputs(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return stacked frames of a low rate (B, T', 7 F) of features (B, T, F), and their lengths
        (B,).
        """
        if self.predictor.masks_padding:
            return low_frame_rate(feats, feats_lengths)

        # As in WeNet, the frames after an utterance are those of its batch.
        frames, _ = low_frame_rate(feats, torch.full_like(feats_lengths, feats.size(1)))
        return frames, self.input_lengths(feats_lengths)

    def input_lengths(self, feats_lengths: torch.Tensor) -> torch.Tensor:
        """Convert lengths (B,) of features to those of frames of low rate."""
        return low_frame_lengths(feats_lengths)

    def _text_loss(
        self, target: torch.Tensor, target_lengths: torch.Tensor, prompts: torch.Tensor
    ) -> Losses:
        """Raise a ValueError: a paraformer learns nothing from text without audio."""
        raise ValueError("a paraformer cannot train on text without audio")

    def _losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
        cr_weight: float | None = None,
    ) -> Losses:
        """Return the losses of encoder frames (B, T', D) of lengths (B,) and labels (B, U).

        `loss` is the sum of `loss_decoder`, the weighted losses of CTC, and one or two more:
        `loss_quantity` and `loss_quantity_tp` are the errors in the number of tokens, of both
        branches of the predictor, divided by the number of tokens.
        """
        # The predictor and the sampler want lengths and counts on the CPU, the decoder beside the
        # frames.
        labels, counts = self._append_end(target, target_lengths)
        predicted = self.predictor(encoder_out, lengths, counts)
        embeds = predicted.embeds  # (B, N, D)
        lengths_on_device = lengths.to(target.device, non_blocking=True)
        if self.conf.sampler and self.training:
            embeds = self.replace_embeds(encoder_out, lengths_on_device, embeds, labels, counts)
        elif self.conf.sampler:
            # The loss of a rank without utterances is that of evaluation, times 0, and must depend
            # on all weights.
            embeds = embeds + 0.0 * self.embed.weight[:1].to(embeds.dtype)

        counts = counts.to(target.device, non_blocking=True)
        logits = self.decoder(encoder_out, lengths_on_device, embeds, counts)  # (B, N, V)
        is_label = labels != self.ignore_id
        is_correct = (logits.detach().argmax(dim=2) == labels) & is_label

        loss_decoder = self.attention_loss(logits, labels)
        quantity_losses = _quantity_losses(predicted, counts)
        loss = loss_decoder
        for quantity_loss in quantity_losses.values():
            loss = loss + quantity_loss
        ctc_loss, ctc_losses = self._ctc_losses(
            encoder_out, lengths, target, target_lengths, cr_weight
        )
        return {
            "loss_decoder": loss_decoder,
            "th_accuracy": is_correct.sum() / is_label.sum().clamp(min=1),
            **quantity_losses,
            **ctc_losses,
            "loss": loss + ctc_loss,
        }

    def _append_end(
        self, target: torch.Tensor, target_lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append <eos> to the labels (B, U) of lengths (B,) if `add_eos`.

        Returns:
            Labels (B, N) padded with ignore_id, N >= 1, and their numbers (B,).
        """
        counts = target_lengths + int(self.conf.add_eos)
        size = max(1, int(counts.max()))
        labels = pad(target, (0, size - target.size(1)), value=self.eos)
        is_target = length_mask(target_lengths.to(target.device, non_blocking=True), size)
        is_label = length_mask(counts.to(target.device, non_blocking=True), size)

        # <eos> in all places after the text, then padding in all places after <eos>.
        labels = labels.masked_fill(~is_target, self.eos)
        labels = labels.masked_fill(~is_label, self.ignore_id)
        return labels, counts

    def replace_embeds(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        embeds: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor,
    ) -> torch.Tensor:
        """Replace some vectors of tokens by the embeddings of their labels.

        The more tokens the decoder gets wrong, the more vectors are replaced: `sampling_ratio` of
        their number. Uses torch's global generator, which training seeds for each step.

        Args:
            encoder_out: (B, T', D).
            lengths: (B,) frames.
            embeds: (B, N, D).
            labels: (B, N) padded with ignore_id.
            counts: (B,) numbers of labels; should be on the CPU.

        Returns:
            (B, N, D), zeros beyond the numbers of labels.
        """
        # The rank of each token in a random order, on the CPU: the first ones are replaced.
        ranks = torch.full(labels.shape, labels.size(1))  # (B, N)
        for row, count in enumerate(counts.tolist()):
            ranks[row, torch.randperm(count)] = torch.arange(count)

        ranks = ranks.to(labels.device, non_blocking=True)
        counts = counts.to(labels.device, non_blocking=True)
        is_label = length_mask(counts, labels.size(1))
        with torch.no_grad():
            answers = self.decoder(encoder_out, lengths, embeds, counts).argmax(dim=2)
            num_wrong = ((answers != labels) & is_label).sum(dim=1)  # (B,)

        num_replaced = (num_wrong.double() * self.conf.sampling_ratio).long()
        is_replaced = ranks < num_replaced.unsqueeze(1)
        true_embeds = self.embed(labels.masked_fill(~is_label, 0))  # (B, N, D)
        mixed = torch.where(is_replaced.unsqueeze(2), true_embeds, embeds.to(true_embeds.dtype))
        return mixed * is_label.unsqueeze(2)

    def predict(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, Prediction]:
        """Score the tokens that the predictor finds in encoder frames (B, T', D) of lengths (B,).

        Returns:
            Log-probabilities (B, N, V) of the tokens, and the prediction with their numbers.
        """
        predicted = self.predictor(encoder_out, lengths)
        logits = self.decoder(encoder_out, lengths, predicted.embeds, predicted.counts)
        return logits.float().log_softmax(dim=2), predicted

    def token_frames(self, predicted: Prediction) -> torch.Tensor:
        """Return the encoder frames (B, N) in which the tokens end; as fractions of a frame if the
        predictor has a branch that finds times.
        """
        weights = predicted.weights[:, :-1]  # (B, T'), without that of the frame after the last
        if predicted.time_weights is None:
            return firing_times(weights, predicted.counts).double()

        steps_per_frame = predicted.time_weights.size(1) / max(weights.size(1), 1)
        steps = firing_times(predicted.time_weights, predicted.counts)
        # Step k of a frame of n steps has its middle (k + 1/2) / n - 1/2 frames from the middle of
        # the frame.
        return (steps + 0.5) / steps_per_frame - 0.5


def _quantity_losses(predicted: Prediction, counts: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return errors of the predicted numbers of tokens, relative to the true numbers (B,).

    A predicted number is the sum of the weights of the frames. `loss_quantity_tp` is of the branch
    that finds times, if there is one.
    """
    true_counts = counts.to(predicted.weight_sums.dtype)
    predicted_counts = {"loss_quantity": predicted.weight_sums}
    if predicted.time_weights is not None:
        predicted_counts["loss_quantity_tp"] = predicted.time_weights.sum(dim=1)

    losses = {}
    for name, predicted_count in predicted_counts.items():
        error = l1_loss(predicted_count, true_counts, reduction="sum")
        losses[name] = error / true_counts.sum().clamp(min=1)
    return losses


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> Paraformer:
    """Build the untrained model that a config describes.

    Raises:
        ValueError: the width of the encoder is not divisible by a number of heads or groups.
    """
    predictor_conf = config.predictor_conf
    assert isinstance(encoder, SanmEncoder), "the family allows no other encoder"
    assert isinstance(config.model_conf, ParaformerConf), "the family has this section"
    assert isinstance(config.decoder_conf, SanmDecoderConf), "the family has this section"
    assert isinstance(predictor_conf, CifPredictorConf), "the family has this section"

    check_heads(config, encoder)
    width = encoder.traits.output_size
    if width % (predictor_conf.cnn_groups or 1):
        raise ValueError(
            f"encoder_conf.output_size {width} is not divisible by cnn_groups "
            f"{predictor_conf.cnn_groups}"
        )

    if isinstance(predictor_conf, ParaformerPredictorConf):
        predictor: CifPredictor = ParaformerPredictor(width, predictor_conf)
    else:
        predictor = CifPredictor(width, predictor_conf)

    decoder = SanmDecoder(vocabulary.size, width, config.decoder_conf)
    weights = LossWeights.of(config)
    return Paraformer(encoder, decoder, predictor, vocabulary, config.model_conf, weights)
