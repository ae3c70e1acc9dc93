"""The model as ONNX graphs: three for WeNet's C++ runtime, one for sherpa-onnx, each offline or streaming."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from wenet_uio.export.torchscript import RuntimeModel
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.embedding import RelPositionalEncoding
from wenet_uio.models.squeezeformer import SqueezeformerEncoder


@dataclass(frozen=True)
class Chunks:
    """How a graph hears an utterance."""

    size: int = -1
    """Encoder frames of a chunk; -1: the whole utterance at once."""
    left: int = -1
    """Chunks seen before the present one; -1: all."""

    @property
    def cache(self) -> int:
        """Encoder frames that a cache of one size holds; negative: the cache grows."""
        return self.size * self.left if self.size > 0 else -1


OFFLINE = Chunks()


@dataclass(frozen=True)
class Graph:
    """A module with all that the exporter and the runtime must know of it."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    """An example of each, in the order in which the runtime gives them."""
    outputs: tuple[str, ...]
    dynamic_axes: dict[str, dict[int, str]]
    metadata: dict[str, object]


class _Ctc(nn.Module):
    """Encoder frames -> CTC log-probabilities."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.ctc = model.ctc

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.ctc.log_softmax(hidden)


class _Offline(nn.Module):
    """A padded batch of utterances -> CTC log-probabilities and their lengths."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.ctc = model.ctc

    def forward(self, x: torch.Tensor, x_lens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        window = x.new_zeros(x.size(0), self.encoder.embed.right_context + 1, x.size(2))
        x = torch.cat((x, window[:, x.size(1) :]), dim=1)  # as Encoder.forward does, whose `if` a trace cannot keep
        encoder_out, lengths = self.encoder(x, x_lens)
        return self.ctc.log_softmax(encoder_out), lengths


class _Chunk(nn.Module):
    """Encoder.forward_chunk with numbers as tensors: one chunk and what was heard before -> frames, caches.

    Runtimes with a cache of one size fill it with zeros at the start, hide them with att_mask, and count the offset
    from its end. Positions count from the first frame heard all the same, as in training: the size is taken off again.
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
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        size = required_cache_size.reshape(())
        out, att_cache, cnn_cache = self.encoder.forward_chunk(
            chunk, offset.reshape(()) - size, size, att_cache, cnn_cache, att_mask
        )
        return out if self.ctc is None else self.ctc.log_softmax(out), att_cache, cnn_cache


class _UnmaskedChunk(nn.Module):
    """The same with a cache that is empty at the start, and then holds all frames (keep -1) or none (keep 0)."""

    def __init__(self, model: ASRModel, keep: int) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.keep = keep

    def forward(
        self, chunk: torch.Tensor, offset: torch.Tensor, att_cache: torch.Tensor, cnn_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.encoder.forward_chunk(chunk, offset, self.keep, att_cache, cnn_cache)


class _Whole(nn.Module):
    """A whole utterance as one chunk, through Encoder.forward; the caches come out as they go in."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(
        self, chunk: torch.Tensor, att_cache: torch.Tensor, cnn_cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        lengths = torch.ones(1, dtype=torch.int64) * chunk.size(1)
        return self.encoder(chunk, lengths)[0], att_cache + 0.0, cnn_cache + 0.0


class _Decoder(nn.Module):
    """Hypotheses and encoder frames -> log-probabilities of both decoders; the runtime weighs them."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.model = RuntimeModel(model)
        self.reverse_weight = 1.0 if self.model.bidirectional else 0.0

    def forward(
        self, hyps: torch.Tensor, hyps_lens: torch.Tensor, encoder_out: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.model.forward_attention_decoder(hyps, hyps_lens, encoder_out, self.reverse_weight)


def check_chunks(model: ASRModel, chunks: Chunks) -> None:
    """Raise a ValueError that says why, unless the model can stream with `chunks`."""
    encoder = model.encoder
    if chunks.size < 1:
        raise ValueError(f"--chunk_size: expected 1 or more encoder frames, found {chunks.size}")
    if encoder.obstacle:
        raise ValueError(encoder.obstacle)
    if encoder.width != encoder.output_size:
        raise ValueError(
            f"runtimes make caches as wide as the encoder's output, {encoder.output_size}; this model's layers are "
            f"{encoder.width} wide: train with both the same"
        )
    if isinstance(encoder, SqueezeformerEncoder) and chunks.size % (rate := 2 ** len(encoder.reduce_before)):
        # Else a chunk may have no frame at the lowest rate, and a trace cannot leave layers out.
        raise ValueError(f"this model's layers lower the rate: --chunk_size {chunks.size} is not a multiple of {rate}")
    if not (encoder.use_dynamic_chunk or encoder.static_chunk_size):
        raise ValueError("this model was trained with full context only; train with use_dynamic_chunk: true")
    static = encoder.static_chunk_size
    if static not in (0, chunks.size):
        raise ValueError(f"this model was trained with chunks of {static}: --chunk_size {static}")


def wenet_graphs(model: ASRModel, feature_dim: int, chunks: Chunks) -> dict[str, Graph]:
    """{file name: graph} for WeNet's C++ runtime: encoder.onnx, ctc.onnx, decoder.onnx."""
    model = _traceable(model)
    metadata = _metadata(model, chunks) | {
        "batch": 1,
        "feature_size": feature_dim,
        "subsampling_rate": model.encoder.embed.subsampling_rate,
        "sos_symbol": model.sos,
        "eos_symbol": model.eos,
        "is_bidirectional_decoder": int(model.decoder.bidirectional),
        "reverse_weight": model.reverse_weight if model.decoder.bidirectional else 0.0,
    }
    chunk = _chunk_example(model, feature_dim, chunks)
    encoder: nn.Module = _Chunk(model, ctc=False)
    if chunks.left <= 0:  # the runtime starts with an empty cache and gives no mask
        encoder = _UnmaskedChunk(model, keep=chunks.left)
        del chunk["required_cache_size"], chunk["att_mask"]
    if chunks == OFFLINE:
        encoder = _Whole(model)
        del chunk["offset"]
    frames = torch.randn(1, 9, model.encoder.output_size)
    hyps = {"hyps": torch.randint(model.vocab_size, (3, 5)), "hyps_lens": torch.tensor([5, 4, 2])}
    per_token = {0: "BEAM", 1: "L"}
    axes = {"chunk": {1: "T"}, "att_cache": {2: "T_CACHE"}, "att_mask": {2: "T_MASK"}}
    return {
        "encoder.onnx": Graph(
            encoder,
            chunk,
            ("output", "r_att_cache", "r_cnn_cache"),
            {name: axes[name] for name in chunk if name in axes}
            | {"output": {1: "T_OUT"}, "r_att_cache": {2: "T_NEXT"}},
            metadata,
        ),
        "ctc.onnx": Graph(
            _Ctc(model), {"hidden": frames}, ("probs",), {"hidden": {1: "T"}, "probs": {1: "T"}}, metadata
        ),
        "decoder.onnx": Graph(
            _Decoder(model),
            hyps | {"encoder_out": frames},
            ("score", "r_score"),
            {"hyps": per_token, "hyps_lens": {0: "BEAM"}, "encoder_out": {1: "T"}, "score": per_token}
            | ({"r_score": per_token} if model.decoder.bidirectional else {}),
            metadata,
        ),
    }


def sherpa_graph(model: ASRModel, feature_dim: int, chunks: Chunks) -> Graph:
    """The one graph of sherpa-onnx: features -> CTC log-probabilities. It knows no cache that grows (left -1)."""
    model = _traceable(model)
    metadata = {
        "model_type": "wenet_ctc",
        "version": 1,
        "model_author": "wenet_uio",
        "comment": "non-streaming" if chunks == OFFLINE else "streaming",
        "subsampling_factor": model.encoder.embed.subsampling_rate,
        "vocab_size": model.vocab_size,
    }
    if chunks == OFFLINE:
        return Graph(
            _Offline(model),
            {"x": torch.randn(2, 60, feature_dim), "x_lens": torch.tensor([60, 50])},
            ("log_probs", "log_probs_lens"),
            {
                "x": {0: "N", 1: "T"},
                "x_lens": {0: "N"},
                "log_probs": {0: "N", 1: "T_OUT"},
                "log_probs_lens": {0: "N"},
            },
            metadata,
        )
    example = _chunk_example(model, feature_dim, chunks)
    names = ("x", "offset", "required_cache_size", "attn_cache", "conv_cache", "attn_mask")
    inputs = dict(zip(names, example.values(), strict=True))
    for name in ("offset", "required_cache_size"):
        inputs[name] = inputs[name].reshape(1)
    return Graph(
        _Chunk(model, ctc=True),
        inputs,
        ("log_probs", "next_att_cache", "next_conv_cache"),
        {
            "x": {1: "T"},
            "attn_cache": {2: "T_CACHE"},
            "attn_mask": {2: "T_MASK"},
            "log_probs": {1: "T_OUT"},
            "next_att_cache": {2: "T_NEXT"},
        },
        metadata | _metadata(model, chunks),
    )


def _traceable(model: ASRModel) -> ASRModel:
    """A copy with an empty table of positions, so that they are computed: a trace keeps a table's length for good."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, RelPositionalEncoding):
            module.pe = module.pe[:, :0]
    return model


def _metadata(model: ASRModel, chunks: Chunks) -> dict[str, object]:
    """What both runtimes must know of a streaming encoder."""
    encoder = model.encoder
    return {
        "chunk_size": chunks.size,
        "left_chunks": chunks.left,
        "head": encoder.heads,
        "num_blocks": len(encoder.encoders),
        "output_size": encoder.output_size,
        "cnn_module_kernel": encoder.cnn_cache_frames + 1,  # runtimes make a convolution's cache of kernel - 1 frames
        "right_context": encoder.embed.right_context,
        "vocab_size": model.vocab_size,
    }


def _chunk_example(model: ASRModel, feature_dim: int, chunks: Chunks) -> dict[str, torch.Tensor]:
    """The inputs of a streaming encoder as they are behind the first chunk."""
    encoder = model.encoder
    size, cache = (chunks.size if chunks.size > 0 else 9), max(chunks.cache, 0)
    layers, head_dim = len(encoder.encoders), encoder.output_size // encoder.heads
    return {
        "chunk": torch.randn(
            1, (size - 1) * encoder.embed.subsampling_rate + encoder.embed.right_context + 1, feature_dim
        ),
        "offset": torch.tensor(cache + size),
        "required_cache_size": torch.tensor(cache),
        "att_cache": torch.randn(layers, encoder.heads, cache, 2 * head_dim),
        "cnn_cache": torch.randn(layers, 1, encoder.output_size, encoder.cnn_cache_frames),
        "att_mask": torch.ones(1, 1, cache + size, dtype=torch.bool),
    }
