"""What every family needs to decode: an encoder with CTC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from wenet_uio.config import Config
from wenet_uio.config.family import Family
from wenet_uio.config.model import ModelKeys
from wenet_uio.models.chunks import encode_chunk_by_chunk
from wenet_uio.models.ctc import CTC
from wenet_uio.models.encoder import Encoder
from wenet_uio.models.encoder_traits import check_decoding_chunk
from wenet_uio.text.special_ids import sos_and_eos
from wenet_uio.text.symbols import EOS, SOS
from wenet_uio.text.tokenizer import build_tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """The size of the vocabulary, and the labels with a fixed meaning.

    Raises:
        ValueError: a label is not below `size`.
    """

    size: int
    blank: int
    sos: int
    eos: int

    def __post_init__(self) -> None:
        for name, label in (("ctc_blank_id", self.blank), ("<sos>", self.sos), ("<eos>", self.eos)):
            if label >= self.size:
                raise ValueError(f"{name} {label} is outside of the vocabulary of {self.size}")


def vocabulary_of(config: Config) -> Vocabulary:
    """Return the size and labels from the config; what is missing there from the units file."""
    special = config.tokenizer_conf.special_tokens or {}
    size, symbols = config.vocabulary_size, {}
    if size is None or SOS not in special or EOS not in special:
        tokenizer = build_tokenizer(config)
        symbols = tokenizer.symbols
        size = size or tokenizer.vocab_size

    ids = sos_and_eos(config.tokenizer_conf, symbols, size)
    return Vocabulary(size, config.ctc_conf.ctc_blank_id, ids[SOS], ids[EOS])


class SpeechModel(nn.Module):
    """An encoder with CTC, and the decoder of the family if it has one.

    `leading_frames`: encoder frames before those of the speech. `training_encoder`: what encodes batches
    of training in place of the encoder, such as a store of its frames; None: the encoder.
    """

    family: Family
    """The record of the model's family."""
    skips_blanks: bool = False
    """Whether the decoder sees only frames without blank."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: nn.Module | None,
        vocabulary: Vocabulary,
        conf: ModelKeys,
        ctc_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        if decoder is not None:
            # States and optimizers list the weights in this order: encoder, decoder, CTC.
            self.add_module("decoder", decoder)

        self.ctc = CTC(vocabulary.size, encoder.traits.output_size, vocabulary.blank, ctc_smoothing)
        self.vocab_size = vocabulary.size
        self.sos, self.eos, self.blank = vocabulary.sos, vocabulary.eos, vocabulary.blank
        self.ctc_weight = conf.ctc_weight
        self.attention_weight = conf.decoder_weight
        self.leading_frames = 0
        self.training_encoder: Callable[..., tuple[torch.Tensor, torch.Tensor]] | None = None

    def inputs(
        self, feats: torch.Tensor, feats_lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the input of the encoder and its lengths (B,) from features (B, T, F) and their
        lengths (B,); here the features.
        """
        return feats, feats_lengths

    def input_lengths(self, feats_lengths: torch.Tensor) -> torch.Tensor:
        """Return the lengths (B,) that `inputs` gives for these features."""
        return feats_lengths

    @property
    def has_trained_decoder(self) -> bool:
        """Whether there is a decoder that influences the loss."""
        return self.attention_weight > 0

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

    @property
    def prompt_tasks(self) -> tuple[str, ...]:
        """Tasks that a prompt of the decoder can name; empty without prompts."""
        return ()

    @property
    def trained_weights(self) -> dict[str, float]:
        """{name in model_conf: weight} of the losses of the parts, in the order of a report."""
        return {"ctc_weight": self.ctc_weight}

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
        check_decoding_chunk(self.encoder.traits, decoding_chunk_size)
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
        traits = self.encoder.traits
        chunk_size = traits.static_chunk_size or decoding_chunk_size
        if chunk_size < 0:
            raise ValueError("simulate_streaming needs decoding_chunk_size > 0")
        if traits.obstacle:
            raise ValueError(f"simulate_streaming: {traits.obstacle}")

        outputs = [
            encode_chunk_by_chunk(
                self.encoder, utterance[:length].unsqueeze(0), chunk_size, num_left_chunks
            )[0]
            for utterance, length in zip(feats, feats_lengths.tolist(), strict=True)
        ]
        lengths = torch.tensor([len(output) for output in outputs], device=feats.device)
        return nn.utils.rnn.pad_sequence(outputs, batch_first=True), lengths

    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Compute CTC log-probabilities (B, T', V) of encoder frames (B, T', D); see
        CTC.log_softmax.
        """
        return self.ctc.log_softmax(encoder_out, blank_penalty)
