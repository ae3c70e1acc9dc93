"""A model whose frames with chunks learn from those with full context, by a contrastive loss."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, normalize

from wenet_uio.addons.families.ctl import CTL
from wenet_uio.addons.families.ctl.conf import CtlConf
from wenet_uio.config import Config
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.build import build_decoder
from wenet_uio.models.decoder import BiTransformerDecoder, TransformerDecoder
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.lengths import encode_for_training
from wenet_uio.models.losses import LossWeights
from wenet_uio.models.masks import ALL_FRAMES, length_mask
from wenet_uio.models.speech_model import Vocabulary
from wenet_uio.models.trainable_model import Losses

VALIDATION_CHUNK = 16
"""Encoder frames of a chunk in validation, unless the encoder has a fixed size; training draws the
size."""


class CtlModel(ASRModel):
    """Encodes each training batch twice, with full context and with chunks (Liu et al. 2023,
    "Enhancing the unified streaming and non-streaming model with contrastive learning"). It decodes
    as an ASRModel.
    """

    family = CTL

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder | BiTransformerDecoder,
        vocabulary: Vocabulary,
        conf: CtlConf,
        weights: LossWeights = LossWeights(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(encoder, decoder, vocabulary, conf, weights)
        assert encoder.traits.trained_in_chunks, "config.checks checks it"
        self.negatives, self.temperature = conf.n_negatives, conf.logit_temp
        self.ctl_weight = conf.ctl_weight if conf.n_negatives else 0.0

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
            feats: (B, T, F); T = 0: texts without audio, from which only the decoder learns.
            feats_lengths: (B,) frames.
            target: (B, U) labels.
            target_lengths: (B,) labels.
            prompts: (B, P) tokens of the decoder before the text; None: <sos>.

        Returns:
            0-d tensors: `loss` = `loss_full` + `loss_chunk` + ctl_weight * `loss_ctl`, its three
            terms, and the means of both passes of `loss_att`, `loss_ctc` and `th_accuracy`.
            `loss_ctl` is a mean over the frames of the batch.
        """
        assert cr_weight is None, "the config refuses two views: both passes are of one view"
        if feats.size(1) == 0:
            losses = super().forward(feats, feats_lengths, target, target_lengths, prompts)
            return {**losses, "loss_full": None, "loss_chunk": None, "loss_ctl": None}
        if prompts is None:
            prompts = target.new_full((len(target), 1), self.sos)

        # Both passes: (B, T', D).
        full_out, lengths, _ = encode_for_training(self, feats, feats_lengths, ALL_FRAMES)
        chunk_out, _, _ = encode_for_training(self, feats, feats_lengths, VALIDATION_CHUNK)
        full_losses = self._losses(full_out, lengths, target, target_lengths, prompts)
        chunk_losses = self._losses(chunk_out, lengths, target, target_lengths, prompts)
        losses = {name: _mean_loss(full_losses[name], chunk_losses[name]) for name in full_losses}
        loss_full, loss_chunk = full_losses["loss"], chunk_losses["loss"]
        assert loss_full is not None
        assert loss_chunk is not None

        loss = loss_full + loss_chunk
        loss_ctl = None
        if self.ctl_weight > 0.0:
            negatives = self.draw_negatives(lengths, full_out.size(1))
            lengths = lengths.to(full_out.device, non_blocking=True)
            negatives = negatives.to(full_out.device, non_blocking=True)
            loss_ctl = self.contrastive_loss(chunk_out, full_out, lengths, negatives)
            loss = loss + self.ctl_weight * loss_ctl

        return {
            **losses,
            "loss": loss,
            "loss_full": loss_full,
            "loss_chunk": loss_chunk,
            "loss_ctl": loss_ctl,
        }

    def loss_weights(self, cr_weight: float | None = None) -> dict[str, float]:
        """Return {name of a loss: its weight in `loss`}: twice that of a mean over both passes."""
        twice = {name: 2.0 * weight for name, weight in super().loss_weights(cr_weight).items()}
        return {**twice, "loss_ctl": self.ctl_weight}

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the losses of an ASRModel, and of the total losses of both passes."""
        return (*super().loss_names, "loss_full", "loss_chunk")

    def draw_negatives(self, lengths: torch.Tensor, frames: int) -> torch.Tensor:
        """Draw, for each frame, other frames of the same utterance, with repetition.

        Validation draws the same frames for the same lengths each time.

        Args:
            lengths: (B,) of the utterances.
            frames: T' of the padded batch.

        Returns:
            Frame numbers (B, T' * negatives) on the CPU. An utterance of one frame has only the
            frame itself.
        """
        generator = None if self.training else torch.Generator().manual_seed(0)
        size = (1, frames * self.negatives)
        rows = []
        for length in lengths.tolist():
            num_other_frames = max(int(length) - 1, 1)
            rows.append(torch.randint(num_other_frames, size, generator=generator))

        # As WeNet draws: the numbers are those of the other frames, so the numbers from the frame
        # itself on move up by one.
        drawn = torch.cat(rows)  # (B, T' * negatives)
        itself = torch.arange(frames).repeat_interleave(self.negatives)  # (T' * negatives,)
        has_other_frames = (lengths.cpu() > 1).unsqueeze(1)  # (B, 1)
        return drawn + ((drawn >= itself) & has_other_frames)

    def contrastive_loss(
        self,
        chunk_out: torch.Tensor,
        full_out: torch.Tensor,
        lengths: torch.Tensor,
        negatives: torch.Tensor,
    ) -> torch.Tensor:
        """Return the cross entropy of choosing, for each frame with chunks, the same frame with
        full context among `negatives`.

        Args:
            chunk_out, full_out: encoder frames (B, T', D) of both passes.
            lengths: (B,).
            negatives: (B, T' * negatives) numbers of the other frames to compare with, those of one
                frame after those of the frame before.

        Returns:
            0-d, the mean over the frames of the batch.
        """
        size = full_out.size(1)
        # In float32: the differences of similarities are small.
        with torch.autocast(full_out.device.type, enabled=False):
            chunk_frames = normalize(chunk_out.float(), dim=2)
            full_frames = normalize(full_out.float(), dim=2)
            similar = chunk_frames @ full_frames.transpose(1, 2)  # (B, T', T')

            # The choices of each frame: itself, then its negatives.
            other_frames = negatives.view(len(negatives), size, -1)  # (B, T', negatives)
            to_itself = similar.diagonal(dim1=1, dim2=2).unsqueeze(2)  # (B, T', 1)
            to_others = similar.gather(2, other_frames)  # (B, T', negatives)
            logits = torch.cat((to_itself, to_others), dim=2) / self.temperature

            # A negative that is the frame itself is no choice: an utterance of one frame has no
            # other.
            frame_number = torch.arange(size, device=similar.device).view(1, -1, 1)
            no_mask = torch.zeros_like(other_frames[:, :, :1], dtype=torch.bool)
            is_itself = torch.cat((no_mask, other_frames == frame_number), dim=2)
            logits = logits.masked_fill(is_itself, -torch.inf)

            # Choice 0, the frame itself, is right for every frame.
            is_frame = length_mask(lengths, size)  # (B, T')
            right_choices = other_frames.new_zeros(is_frame.numel())
            losses = cross_entropy(logits.flatten(0, 1), right_choices, reduction="none")
            return (losses * is_frame.flatten()).sum() / is_frame.sum().clamp(min=1)


def _mean_loss(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    """Return the mean of the losses of both passes; None for a loss whose weight is 0."""
    return None if one is None or other is None else (one + other) / 2


def build(config: Config, encoder: Encoder, vocabulary: Vocabulary) -> CtlModel:
    """Build the untrained model that a config describes."""
    assert isinstance(config.model_conf, CtlConf), "the family has this section"
    decoder = build_decoder(config, encoder, vocabulary)
    return CtlModel(encoder, decoder, vocabulary, config.model_conf, LossWeights.of(config))
