"""Graphs to export to ONNX: three for WeNet's C++ runtime, one for sherpa-onnx, each offline or
streaming.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from wenet_uio.addons.runtimes.onnx_modules import (
    ChunkModule,
    CtcModule,
    DecoderModule,
    OfflineModule,
    StreamsModule,
    UnmaskedChunkModule,
    WholeModule,
    traceable,
)
from wenet_uio.export.chunks import OFFLINE, Chunks, check_chunks
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.caches import join_chunks
from wenet_uio.models.layered_encoder import LayeredEncoder

EXAMPLE_FRAMES = 9
"""Encoder frames of the example chunk if chunks may have any size."""
CTC_FOR_SHERPA = "wenet_ctc"
"""`model_type` in the metadata of `sherpa_graph`."""


@dataclass(frozen=True)
class Graph:
    """A module with the information that the exporter and the runtime need."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    """{name: example}, in the order in which the runtime passes them."""
    outputs: tuple[str, ...]
    """Names."""
    dynamic_axes: dict[str, dict[int, str]]
    """{input or output: {dimension: name}} of the dimensions with a variable size."""
    metadata: dict[str, object]
    """Values that the runtime reads from the file."""


def check_onnx_chunks(model: ASRModel, chunks: Chunks) -> None:
    """Check that the model can stream with `chunks` in the runtimes of ONNX graphs.

    Raises:
        ValueError: it cannot; the message has the reason.
    """
    check_chunks(model, chunks)
    traits = model.encoder.traits
    if traits.chunk_unit > 1:
        raise ValueError(
            "ONNX runtimes count frames and caches by the rate of the last layer, but this encoder "
            "lowers the frame rate or joins frames to groups: stream with TorchScript"
        )

    if traits.width != traits.output_size:
        raise ValueError(
            f"runtimes create caches of the width of the encoder's output, {traits.output_size}, "
            f"but the layers of this model have the width {traits.width}: train with equal widths"
        )

    if traits.heads * traits.head_dim != traits.width:
        raise ValueError(
            "runtimes create caches of all heads, but heads of this model share keys: train "
            "without n_kv_head"
        )

    if chunks.size % traits.traced_chunk_unit:
        raise ValueError(
            f"this model lowers the frame rate: --chunk_size {chunks.size} is not a multiple of "
            f"{traits.traced_chunk_unit}"
        )


def wenet_graphs(model: ASRModel, feature_dim: int, chunks: Chunks) -> dict[str, Graph]:
    """Return graphs for WeNet's C++ runtime by file name: encoder.onnx, ctc.onnx, decoder.onnx."""
    model = traceable(model)
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
    encoder: nn.Module = ChunkModule(model, ctc=False)
    if chunks.left <= 0:  # the runtime starts with an empty cache and passes no mask
        encoder = UnmaskedChunkModule(model, keep=chunks.left)
        del chunk["required_cache_size"], chunk["att_mask"]
    if chunks == OFFLINE:
        encoder = WholeModule(model)
        del chunk["offset"]

    input_axes = {"chunk": {1: "T"}, "att_cache": {2: "T_CACHE"}, "att_mask": {2: "T_MASK"}}
    encoder_axes = {name: input_axes[name] for name in chunk if name in input_axes}
    encoder_axes |= {"output": {1: "T_OUT"}, "r_att_cache": {2: "T_NEXT"}}
    encoder_outputs = ("output", "r_att_cache", "r_cnn_cache")

    frames = torch.randn(1, EXAMPLE_FRAMES, model.encoder.traits.output_size)
    ctc_axes = {"hidden": {1: "T"}, "probs": {1: "T"}}

    hypotheses = {
        "hyps": torch.randint(model.vocab_size, (3, 5)),
        "hyps_lens": torch.tensor([5, 4, 2]),
        "encoder_out": frames,
    }
    per_token = {0: "BEAM", 1: "L"}
    decoder_axes = {"hyps": per_token, "hyps_lens": {0: "BEAM"}, "encoder_out": {1: "T"}}
    decoder_axes["score"] = per_token
    if model.decoder.bidirectional:
        decoder_axes["r_score"] = per_token

    ctc, decoder = CtcModule(model), DecoderModule(model)
    return {
        "encoder.onnx": Graph(encoder, chunk, encoder_outputs, encoder_axes, metadata),
        "ctc.onnx": Graph(ctc, {"hidden": frames}, ("probs",), ctc_axes, metadata),
        "decoder.onnx": Graph(decoder, hypotheses, ("score", "r_score"), decoder_axes, metadata),
    }


def streams_graphs(model: ASRModel, feature_dim: int) -> dict[str, Graph]:
    """Return graphs for this package by file name: streams.onnx, ctc.onnx, decoder.onnx. The first
    one encodes chunks of several streams.

    Raises:
        ValueError: the encoder cannot encode chunks of several streams together.
    """
    model = traceable(model)
    encoder, traits = model.encoder, model.encoder.traits
    if not isinstance(encoder, LayeredEncoder) or not traits.batches_chunks:
        raise ValueError("--runtimes streams: this encoder takes the chunks of streams one by one")

    graphs = wenet_graphs(model, feature_dim, OFFLINE)
    frames, cached, streams = 9, 5, 2
    window = (frames - 1) * encoder.embed.subsampling_rate + encoder.embed.right_context + 1
    like = torch.zeros(streams, frames, traits.width)
    caches = (
        torch.randn(traits.layers, traits.heads, cached, 2 * traits.head_dim),
        torch.randn(traits.layers, 1, traits.width, traits.cnn_cache_frames),
    )
    joined = join_chunks(encoder.embed, traits, like, [cached] * streams, [caches] * streams)
    inputs = {
        "chunk": torch.randn(streams, window, feature_dim),
        "bias": torch.zeros(streams, 1, 1, cached + frames),
        "pos_emb": joined.pos_emb,
        "att_cache": joined.att_cache,
        "cnn_cache": joined.cnn_cache,
    }
    encoder_graph = Graph(
        StreamsModule(encoder),
        inputs,
        ("output", "att_pasts", "cnn_pasts"),
        {
            "chunk": {0: "B", 1: "T"},
            "bias": {0: "B", 3: "K"},
            "pos_emb": {0: "B", 1: "K"},
            "att_cache": {1: "B", 3: "C"},
            "cnn_cache": {1: "B"},
            "output": {0: "B", 1: "T_OUT"},
            "att_pasts": {1: "B", 3: "K"},
            "cnn_pasts": {1: "B"},
        },
        graphs["encoder.onnx"].metadata,
    )
    per_frame = {0: "B", 1: "T"}
    ctc = replace(graphs["ctc.onnx"], dynamic_axes={"hidden": per_frame, "probs": per_frame})
    return {
        "streams.onnx": encoder_graph,
        "ctc.onnx": ctc,
        "decoder.onnx": graphs["decoder.onnx"],
    }


def sherpa_graph(model: ASRModel, feature_dim: int, chunks: Chunks) -> Graph:
    """Return the graph for sherpa-onnx: features -> CTC log-probabilities. sherpa-onnx has no
    growing cache (left -1).
    """
    model = traceable(model)
    metadata = {
        "model_type": CTC_FOR_SHERPA,
        "version": 1,
        "model_author": "wenet_uio",
        "comment": "non-streaming" if chunks == OFFLINE else "streaming",
        "subsampling_factor": model.encoder.embed.subsampling_rate * model.encoder.traits.reduction,
        "vocab_size": model.vocab_size,
    }
    if chunks == OFFLINE:
        return Graph(
            OfflineModule(model),
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
    inputs: dict[str, torch.Tensor] = dict(zip(names, example.values(), strict=True))
    for name in ("offset", "required_cache_size"):
        inputs[name] = inputs[name].reshape(1)

    return Graph(
        ChunkModule(model, ctc=True),
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


def _metadata(model: ASRModel, chunks: Chunks) -> dict[str, object]:
    """Return metadata of a streaming encoder that both runtimes read."""
    encoder = model.encoder
    return {
        "chunk_size": chunks.size,
        "left_chunks": chunks.left,
        "head": encoder.traits.heads,
        "num_blocks": encoder.traits.layers,
        "output_size": encoder.traits.output_size,
        # Runtimes create caches of cnn_module_kernel - 1 frames.
        "cnn_module_kernel": encoder.traits.cnn_cache_frames + 1,
        "right_context": encoder.embed.right_context,
        "vocab_size": model.vocab_size,
    }


def _chunk_example(model: ASRModel, feature_dim: int, chunks: Chunks) -> dict[str, torch.Tensor]:
    """Return example inputs of a streaming encoder, for the second chunk of an utterance."""
    embed, traits = model.encoder.embed, model.encoder.traits
    chunk_frames = chunks.size if chunks.size > 0 else EXAMPLE_FRAMES
    cache_frames = max(chunks.cache, 0)
    feature_frames = (chunk_frames - 1) * embed.subsampling_rate + embed.right_context + 1

    return {
        "chunk": torch.randn(1, feature_frames, feature_dim),
        "offset": torch.tensor(cache_frames + chunk_frames),
        "required_cache_size": torch.tensor(cache_frames),
        "att_cache": torch.randn(traits.layers, traits.heads, cache_frames, 2 * traits.head_dim),
        "cnn_cache": torch.randn(traits.layers, 1, traits.output_size, traits.cnn_cache_frames),
        "att_mask": torch.ones(1, 1, cache_frames + chunk_frames, dtype=torch.bool),
    }
