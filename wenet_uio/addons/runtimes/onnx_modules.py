"""The modules that are traced for ONNX graphs: parts of a model with the inputs and outputs that
runtimes use.

The exporter traces a module: the graph has the operations of one call with example inputs. The
example decides every `if`, and a number becomes a constant unless the module passes it as a tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from wenet_uio.export.torchscript import RuntimeModel
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.embedding import RelPositionalEncoding
from wenet_uio.models.layered_encoder import LayeredEncoder
from wenet_uio.models.speech_model import SpeechModel

AnyModel = TypeVar("AnyModel", bound=SpeechModel)
EncodedChunk = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Encoder frames or log-probabilities (1, chunk, ...), and both caches for the next chunk."""


def traceable(model: AnyModel) -> AnyModel:
    """Return a copy of the model without its table of positions: a trace would limit utterances to
    the length of the table.
    """
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, RelPositionalEncoding):
            module.pe = module.pe[:, :0]
    return model


class CtcModule(nn.Module):
    """Encoder frames -> CTC log-probabilities."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.ctc = model.ctc

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute log-probabilities (B, T', V) of encoder frames (B, T', D)."""
        return self.ctc.log_softmax(hidden)


class OfflineModule(nn.Module):
    """A padded batch of utterances -> CTC log-probabilities and their lengths."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.ctc = model.ctc

    def forward(self, x: torch.Tensor, x_lens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probabilities (N, T', V) and lengths (N,) of features x (N, T, F) of lengths
        x_lens (N,).
        """
        # Utterances shorter than the window of one encoder frame are padded with zeros to it.
        # Encoder.forward pads in an `if`, which a trace cannot keep.
        window = x.new_zeros(x.size(0), self.encoder.embed.right_context + 1, x.size(2))
        missing_frames = window[:, x.size(1) :]  # none of a longer utterance
        x = torch.cat((x, missing_frames), dim=1)
        encoder_out, lengths = self.encoder(x, x_lens)
        return self.ctc.log_softmax(encoder_out), lengths


class ChunkModule(nn.Module):
    """Encoder.forward_chunk with tensors instead of numbers, for a cache of fixed size.

    Runtimes fill the cache with zeros at the start and hide the zeros with att_mask. They add the
    size of the cache to the offset. Positions count from the first frame of the utterance, as in
    training, so the size is subtracted again.
    """

    def __init__(self, model: ASRModel, ctc: bool) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.ctc = model.ctc if ctc else None

    def forward(
        self,
        chunk: torch.Tensor,
        offset: torch.Tensor,
        required_cache_size: torch.Tensor,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
        att_mask: torch.Tensor,
    ) -> EncodedChunk:
        """Encode features (1, T, F) of a chunk; the other arguments as in Encoder.forward_chunk."""
        size = required_cache_size.reshape(())
        # forward_chunk declares int for TorchScript. A trace needs tensors: it would store an int
        # as a constant.
        encode: Callable[..., EncodedChunk] = self.encoder.forward_chunk
        first_frame = offset.reshape(()) - size
        out, att_cache, cnn_cache = encode(chunk, first_frame, size, att_cache, cnn_cache, att_mask)
        if self.ctc is not None:
            out = self.ctc.log_softmax(out)
        return out, att_cache, cnn_cache


class UnmaskedChunkModule(nn.Module):
    """Encoder.forward_chunk with a cache that is empty at the start and keeps all frames (keep -1)
    or none (keep 0).
    """

    def __init__(self, model: ASRModel, keep: int) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.keep = keep

    def forward(
        self,
        chunk: torch.Tensor,
        offset: torch.Tensor,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> EncodedChunk:
        """Encode features (1, T, F) of a chunk; the other arguments as in Encoder.forward_chunk."""
        # forward_chunk declares int for TorchScript, but a trace would store an int as a constant.
        encode: Callable[..., EncodedChunk] = self.encoder.forward_chunk
        return encode(chunk, offset, self.keep, att_cache, cnn_cache)


class StreamsModule(nn.Module):
    """A chunk of each of several streams, whose caches are joined as JoinedChunks.

    Size of the chunk, length of the caches and number of streams may differ from call to call. A
    whole utterance is a chunk without a cache.
    """

    def __init__(self, encoder: LayeredEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self,
        chunk: torch.Tensor,
        bias: torch.Tensor,
        pos_emb: torch.Tensor,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> EncodedChunk:
        """Features (B, T, F) -> encoder frames (B, T', D), and the pasts of all layers; the other
        arguments as in JoinedChunks.
        """
        encoder = self.encoder
        # The exporter drops inputs without effect, such as the positions of an encoder without
        # them. So zero times a number of each position (B, K) is added to the bias (B, 1, 1, K).
        number_of_position = pos_emb.flatten(2)[:, None, None, :, 0]
        bias = bias + 0.0 * number_of_position

        feats = chunk if encoder.global_cmvn is None else encoder.global_cmvn(chunk)
        frames = encoder.embed.project(feats)
        out, att_pasts, cnn_pasts = encoder.encode_joined(
            frames, bias, pos_emb, att_cache, cnn_cache
        )
        return out, torch.stack(att_pasts), torch.stack(cnn_pasts)


class WholeModule(nn.Module):
    """Encoder.forward for a whole utterance; returns the caches unchanged."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(
        self, chunk: torch.Tensor, att_cache: torch.Tensor, cnn_cache: torch.Tensor
    ) -> EncodedChunk:
        """Encode features (1, T, F) of an utterance -> encoder frames (1, T', D), caches."""
        # The trace keeps this product, while torch.tensor(T) would be a constant.
        lengths = torch.ones(1, dtype=torch.int64) * chunk.size(1)
        frames, _ = self.encoder(chunk, lengths)
        # An output must be the result of an operation, not an input.
        return frames, att_cache + 0.0, cnn_cache + 0.0


class DecoderModule(nn.Module):
    """Hypotheses and encoder frames -> log-probabilities of both decoders; the runtime combines
    them.
    """

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.model = RuntimeModel(model)
        self.reverse_weight = 1.0 if self.model.bidirectional else 0.0

    def forward(
        self, hyps: torch.Tensor, hyps_lens: torch.Tensor, encoder_out: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the log-probabilities of hypotheses (N, L) of lengths (N,) for encoder frames
        (1, T', D), by the decoder from left to right and by that from right to left.
        """
        return self.model.forward_attention_decoder(
            hyps, hyps_lens, encoder_out, self.reverse_weight
        )
