"""The recogniser: an encoder with CTC and an attention decoder, trained together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from wenet_uio.config.family import Family
from wenet_uio.config.model import HybridConf, ModelKeys
from wenet_uio.models.ctc import CTC
from wenet_uio.models.decoder import BiTransformerDecoder, TransformerDecoder, reversed_hypotheses
from wenet_uio.models.decoding_chunks import check_decoding_chunk
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.label_smoothing import LabelSmoothingLoss
from wenet_uio.models.lengths import encoded
from wenet_uio.models.masks import length_mask, selected_frames
from wenet_uio.models.vocabulary import Vocabulary

Losses = dict[str, torch.Tensor | None]
"""{name: 0-d tensor, or None for a loss whose weight is 0}."""


class ASRModel(nn.Module):
    """Hybrid model with CTC and attention (Watanabe et al. 2017; U2, Zhang et al. 2020).

    `interctc_weight`: share of the CTC loss of blocks in the middle of the encoder, if it has an
    `inter_ctc`. `cr_weight`: weight of the divergence between two views; the engine raises it in
    the warm-up. `leading_frames`: encoder frames before those of the speech.
    """

    family: Family
    """The record of the model's family."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: TransformerDecoder | BiTransformerDecoder,
        vocabulary: Vocabulary,
        conf: ModelKeys,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.ctc = CTC(vocabulary.size, encoder.output_size, vocabulary.blank)
        self.vocab_size = vocabulary.size
        self.sos, self.eos, self.blank = vocabulary.sos, vocabulary.eos, vocabulary.blank
        self.ignore_id = conf.ignore_id
        self.ctc_weight = conf.ctc_weight
        self.attention_weight = conf.decoder_weight
        self.cr_weight = self.interctc_weight = 0.0
        self.leading_frames = 0
        self.reverse_weight = conf.reverse_weight if isinstance(conf, HybridConf) else 0.0
        self.text_weight = 1.0
        self.skips_blanks = isinstance(conf, HybridConf) and conf.skips_blanks
        self.attention_loss = LabelSmoothingLoss(
            vocabulary.size, conf.ignore_id, conf.lsm_weight, conf.length_normalized_loss
        )

    def forward(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor | None = None,
        views: int = 1,
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
            views: 2: rows n and n + B / 2 are augmented views of one utterance.

        Returns:
            0-d tensors, means over the utterances: `loss`, the sum with `loss_weights` of
                `loss_ctc`, `loss_att`,
            `loss_interctc` (blocks in the middle) and `loss_cr` (divergence of two views); and
            `th_accuracy`, the share of tokens that the decoder predicts correctly from the tokens
            before. A loss with weight 0 is None.
        """
        if prompts is None:
            prompts = target.new_full((len(target), 1), self.sos)
        if feats.size(1) == 0:
            return self._text_loss(target, target_lengths, prompts)
        if self.encoder.inter_ctc is None:
            return self._losses(
                *encoded(self, feats, feats_lengths), target, target_lengths, prompts, views
            )
        with self.encoder.inter_ctc.collecting() as between:
            encoder_out, lengths = encoded(self, feats, feats_lengths)
        losses = self._losses(encoder_out, lengths, target, target_lengths, prompts, views)
        loss, loss_interctc = (
            losses["loss"],
            self.encoder.inter_ctc.loss(between, target, target_lengths),
        )
        assert loss is not None
        loss = loss + self.interctc_weight * self.ctc_weight * loss_interctc
        return {**losses, "loss": loss, "loss_interctc": loss_interctc}

    def prompts(
        self, texts: Sequence[str], fields: Sequence[Mapping[str, Any]], keys: Sequence[str] = ()
    ) -> torch.Tensor | None:
        """The tokens with which the decoder starts, of utterances with these texts, fields and
        keys; None: sos.
        """
        return None

    @property
    def idle_modules(self) -> list[nn.Module]:
        """Modules that do not influence the loss, because their weights in it are 0."""
        idle: list[nn.Module] = [] if self.ctc_weight else [self.ctc]
        if self.attention_weight == 0:
            return [*idle, self.decoder]
        if self.reverse_weight == 0 and isinstance(self.decoder, BiTransformerDecoder):
            idle.append(self.decoder.right_decoder)
        return idle

    @property
    def trained_weights(self) -> dict[str, float]:
        """{name in model_conf: weight} of the losses of the parts, in the order of a report."""
        return {"ctc_weight": self.ctc_weight, "attention_weight": self.attention_weight}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.ctc.ctc_lo.weight.device

    @property
    def masks_padding(self) -> bool:
        """Whether the frames of an utterance do not depend on the padding of its batch."""
        return self.encoder.masks_padding

    @property
    def prompt_languages(self) -> tuple[str, ...]:
        """Codes of the languages that a prompt of the decoder can name; empty without prompts."""
        return ()

    def inputs(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Features (B, T, F) and lengths (B,) -> the input of the encoder and its lengths; here the
        features.
        """
        return feats, feats_lengths

    def input_lengths(self, feats_lengths: torch.Tensor) -> torch.Tensor:
        """The lengths (B,) that `inputs` gives for these features."""
        return feats_lengths

    @property
    def loss_weights(self) -> dict[str, float]:
        """Weights of the losses that `loss` is the sum of."""
        inter = self.interctc_weight
        weights = {
            "att": self.attention_weight,
            "ctc": (1.0 - inter) * self.ctc_weight,
        }
        weights |= {"interctc": inter * self.ctc_weight, "cr": self.cr_weight}
        return {f"loss_{name}": weight for name, weight in weights.items()}

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the values of `forward` that are not None: `loss`, then the losses with a weight
        above 0.
        """
        names = [name for name, weight in self.loss_weights.items() if weight > 0.0]
        return ("loss", *names, *(["th_accuracy"] if self.attention_weight > 0.0 else []))

    def _losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
        views: int = 1,
    ) -> Losses:
        """Losses for encoder_out (B, T', D) and lengths (B,); see `forward`."""
        loss_att = th_accuracy = None
        loss, losses = self._ctc_losses(encoder_out, lengths, target, target_lengths, views)
        if self.attention_weight > 0.0:
            memory, memory_lengths = self.decoder_frames(encoder_out, lengths)
            loss_att, th_accuracy = self._attention_loss(
                memory, memory_lengths, target, target_lengths, prompts
            )
            loss = loss + self.attention_weight * loss_att
        return {"loss": loss, "loss_att": loss_att, **losses, "th_accuracy": th_accuracy}

    def _ctc_losses(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        views: int,
    ) -> tuple[torch.Tensor, Losses]:
        """The weighted sum of the losses of the CTC layer, and these losses: `loss_ctc`, and
        `loss_cr` of two views.
        """
        loss = encoder_out.new_zeros((), dtype=torch.float32)
        if self.ctc_weight == 0.0:
            return loss, {"loss_ctc": None}
        weight = (1.0 - self.interctc_weight) * self.ctc_weight
        if views == 1:
            loss_ctc = self.ctc(encoder_out, lengths, target, target_lengths)
            return loss + weight * loss_ctc, {"loss_ctc": loss_ctc}
        loss_ctc, loss_cr = self.ctc.losses_of_views(encoder_out, lengths, target, target_lengths)
        return loss + weight * loss_ctc + self.cr_weight * loss_cr, {
            "loss_ctc": loss_ctc,
            "loss_cr": loss_cr,
        }

    def _text_loss(
        self, target: torch.Tensor, target_lengths: torch.Tensor, prompts: torch.Tensor
    ) -> Losses:
        """Losses of text without audio: the decoder attends to one frame of zeros."""
        nothing = self.ctc.ctc_lo.weight.new_zeros(len(target), 1, self.ctc.ctc_lo.in_features)
        lengths = torch.ones_like(target_lengths)
        loss_att, accuracy = self._attention_loss(nothing, lengths, target, target_lengths, prompts)
        loss = self.text_weight * loss_att
        return {"loss": loss, "loss_att": loss_att, "loss_ctc": None, "th_accuracy": accuracy}

    def _attention_loss(
        self,
        encoder_out: torch.Tensor,
        lengths: torch.Tensor,
        target: torch.Tensor,
        target_lengths: torch.Tensor,
        prompts: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of the decoder, and the share of tokens that the left-to-right decoder predicts
        correctly.
        """
        lengths, target_lengths = (
            each.to(target.device, non_blocking=True) for each in (lengths, target_lengths)
        )
        valid = target != self.ignore_id
        tokens = torch.cat((prompts, target.masked_fill(~valid, self.eos)), dim=1)
        token_lengths = target_lengths + prompts.size(1)
        backward = reversed_hypotheses(tokens, token_lengths, self.eos)
        memory_mask = length_mask(lengths, encoder_out.size(1)).unsqueeze(1)
        left, right = self.decoder(
            encoder_out, memory_mask, tokens, token_lengths, backward, self.reverse_weight
        )
        labels = self._labels(tokens, token_lengths)
        loss = self.attention_loss(left, labels)
        if right.dim() == 3:
            reverse_loss = self.attention_loss(right, self._labels(backward, token_lengths))
            loss = (1.0 - self.reverse_weight) * loss + self.reverse_weight * reverse_loss
        counted = labels != self.ignore_id
        right_answers = (left.detach().argmax(dim=2) == labels) & counted
        return loss, right_answers.sum() / counted.sum().clamp(min=1)

    def _labels(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """The token after each token: `sos a b` (B, U) -> `a b eos`, padded with ignore_id."""
        shifted = pad(tokens[:, 1:], (0, 1), value=self.eos)
        return shifted.masked_fill(~length_mask(lengths, tokens.size(1)), self.ignore_id)

    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute encoder frames from features.

        Args:
            feats: (B, T, F).
            feats_lengths: (B,) frames.
            decoding_chunk_size: encoder frames of a chunk; -1: full context.
            num_decoding_left_chunks: chunks seen before the current chunk; -1: all.
            simulate_streaming: encode each utterance alone, chunk by chunk with caches, as a
                streaming runtime does.

        Returns:
            Encoder frames (B, T', D) and lengths (B,). Frames beyond an utterance's length are
            zeros.

        Raises:
            ValueError: the model does not support these chunks.
        """
        check_decoding_chunk(self.encoder, decoding_chunk_size)
        if simulate_streaming:
            return self._encode_streams(
                feats, feats_lengths, decoding_chunk_size, num_decoding_left_chunks
            )
        return self.encoder(
            *self.inputs(feats, feats_lengths), decoding_chunk_size, num_decoding_left_chunks
        )

    def _encode_streams(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int,
        num_left_chunks: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode each utterance chunk by chunk; see `encode`."""
        encoder = self.encoder
        chunk_size = encoder.static_chunk_size or decoding_chunk_size
        if chunk_size < 0:
            raise ValueError("simulate_streaming needs decoding_chunk_size > 0")
        if encoder.obstacle:
            raise ValueError(f"simulate_streaming: {encoder.obstacle}")
        outputs = [
            encoder.forward_chunk_by_chunk(
                utterance[:length].unsqueeze(0), chunk_size, num_left_chunks
            )[0]
            for utterance, length in zip(feats, feats_lengths.tolist(), strict=True)
        ]
        lengths = torch.tensor([len(output) for output in outputs], device=feats.device)
        return nn.utils.rnn.pad_sequence(outputs, batch_first=True), lengths

    def decoder_frames(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Frames that the decoder sees in training and rescoring: all, or with `skips_blanks` those
        without blank.

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
            labels = self.ctc.log_softmax(encoder_out).argmax(dim=2)
        kept = (labels != self.blank) & length_mask(
            lengths.to(labels.device, non_blocking=True), encoder_out.size(1)
        )
        # In training, an accelerator computes on padding rather than let the host wait for the
        # largest count.
        in_full_length = self.training and encoder_out.device.type != "cpu"
        frames, counts = selected_frames(encoder_out, kept, in_full_length)
        return frames, counts.clamp(min=1)

    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """CTC log-probabilities (B, T', V) of encoder frames (B, T', D); see CTC.log_softmax."""
        return self.ctc.log_softmax(encoder_out, blank_penalty)

    def forward_attention_decoder(
        self,
        hyps: torch.Tensor,
        hyps_lens: torch.Tensor,
        encoder_out: torch.Tensor,
        reverse_weight: float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the hypotheses of one utterance; see Decoder.score_hypotheses."""
        return self.decoder.score_hypotheses(hyps, hyps_lens, encoder_out, self.eos, reverse_weight)
