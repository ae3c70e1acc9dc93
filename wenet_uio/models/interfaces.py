"""Interfaces of models that decode. ASRModel and exported models implement them."""

from __future__ import annotations

from typing import Protocol

import torch

from wenet_uio.config.family import Family
from wenet_uio.models.encoder import Encoder


class ScoringDecoder(Protocol):
    """A decoder that scores given hypotheses."""

    bidirectional: bool
    """Whether it can score right to left too."""

    def __call__(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
        r_ys_in_pad: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the next token after each given token; see TransformerDecoder.forward."""
        ...


class RescoringModel(Protocol):
    """A model whose decoder can rescore hypotheses."""

    @property
    def vocab_size(self) -> int:
        """Number of labels."""
        ...

    @property
    def sos(self) -> int:
        """Label that starts every hypothesis."""
        ...

    @property
    def eos(self) -> int:
        """Label that ends every hypothesis."""
        ...

    @property
    def decoder(self) -> ScoringDecoder:
        """The decoder that scores the hypotheses."""
        ...


class DecodingModel(Protocol):
    """What searches need of a model: a trained one, or an exported one in its place."""

    @property
    def family(self) -> Family:
        """The record of the model's family."""
        ...

    @property
    def encoder(self) -> Encoder:
        """The encoder, with its frame rate and context."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    @property
    def masks_padding(self) -> bool:
        """Whether the frames of an utterance do not depend on the padding of its batch."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of labels."""
        ...

    @property
    def sos(self) -> int:
        """Label that starts every hypothesis."""
        ...

    @property
    def eos(self) -> int:
        """Label that ends every hypothesis."""
        ...

    @property
    def blank(self) -> int:
        """The label of CTC that is no token."""
        ...

    @property
    def ctc_weight(self) -> float:
        """Weight of the CTC loss; 0: CTC was not trained."""
        ...

    @property
    def attention_weight(self) -> float:
        """Weight of the attention loss; 0: the decoder was not trained."""
        ...

    @property
    def leading_frames(self) -> int:
        """Encoder frames before those of the speech."""
        ...

    @property
    def prompt_languages(self) -> tuple[str, ...]:
        """Codes of the languages that a prompt of the decoder can name; empty without prompts."""
        ...

    @property
    def prompt_tasks(self) -> tuple[str, ...]:
        """Tasks that a prompt of the decoder can name; empty without prompts."""
        ...

    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute encoder frames (B, T', D) and lengths (B,) of features (B, T, F); see SpeechModel.encode."""
        ...

    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Compute CTC log-probabilities (B, T', V) of encoder frames (B, T', D)."""
        ...

    def to(self, device: torch.device | str) -> DecodingModel:
        """Move the model to a device."""
        ...

    def eval(self) -> DecodingModel:
        """Switch to evaluation mode."""
        ...


class AttentionModel(DecodingModel, RescoringModel, Protocol):
    """A DecodingModel whose decoder can rescore hypotheses."""

    @property
    def reverse_weight(self) -> float:
        """Weight of the right-to-left decoder."""
        ...

    def decoder_frames(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the frames (B, T'', D) that the decoder sees, and their lengths (B,)."""
        ...
