"""A model with a Zipformer for sherpa-onnx: its graphs, offline and streaming, and the check
against the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import cycle, islice

import torch
from torch import nn

from wenet_uio.addons.encoders.zipformer.embed import convolved_bins
from wenet_uio.addons.encoders.zipformer.encoder import ZipformerEncoder
from wenet_uio.addons.runtimes.onnx_graphs import Graph
from wenet_uio.addons.runtimes.onnx_models import OnnxModel
from wenet_uio.addons.runtimes.onnx_modules import OfflineModule, traceable
from wenet_uio.addons.runtimes.sherpa import CtcExport
from wenet_uio.export.check import Agreement, Difference, compare_examples
from wenet_uio.export.chunks import OFFLINE, Chunks, check_chunks
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.search.ctc_path import ctc_greedy_search

LOUDER = 2.0 * math.log(32768.0)
"""Difference of log-mel features: sherpa-onnx computes those of a zipformer from samples of -1 to
1, not of 16 bits."""
STREAMING_BINS = 80
"""sherpa-onnx creates the first state of a streaming zipformer for this number of features."""
GREEDY = "ctc_greedy_search"
NAMES = (
    "cached_key",
    "cached_nonlin_attn",
    "cached_val1",
    "cached_val2",
    "cached_conv1",
    "cached_conv2",
)
"""Names of the caches of a layer, in the order of ZipformerLayer.forward."""
TIME_FIRST = ("cached_key", "cached_val1", "cached_val2")
"""Caches that sherpa-onnx has as (C, N, …) for C frames and N streams."""
GATED = "cached_nonlin_attn"
"""The cache of gated frames; sherpa-onnx has it as (1, N, C, …)."""


def check_zipformer_chunks(model: ASRModel, chunks: Chunks) -> None:
    """Check that sherpa-onnx can stream the model with `chunks`.

    Raises:
        ValueError: it cannot; the message has the reason.
    """
    check_chunks(model, chunks)
    unit = model.encoder.traits.chunk_unit
    if chunks.size % unit:
        raise ValueError(
            f"--chunk_size {chunks.size} is not a multiple of {unit}, by which this encoder lowers "
            "the rate"
        )

    if chunks.left < 1:
        raise ValueError(
            f"--num_decoding_left_chunks {chunks.left}: a zipformer in sherpa-onnx needs 1 or more"
        )

    # The past of the input layer, which sherpa-onnx creates, is (channels, frames, bins).
    _, _, bins = _zipformer_encoder(model).layout.edge_shape
    if bins != convolved_bins(STREAMING_BINS):
        raise ValueError(
            f"sherpa-onnx streams zipformers of {STREAMING_BINS} features only: num_mel_bins"
        )


def zipformer_export() -> CtcExport:
    """Return what export_onnx.py needs of a model with this encoder."""
    return CtcExport(
        zipformer_graph,
        check_zipformer_chunks,
        compare_zipformer,
        "a zipformer is exported to ONNX for sherpa-onnx only, with its CTC",
    )


class ZipformerOffline(nn.Module):
    """OfflineModule for the features of sherpa-onnx, which are lower by LOUDER."""

    def __init__(self, model: ASRModel) -> None:
        super().__init__()
        self.whole = OfflineModule(model)

    def forward(self, x: torch.Tensor, x_lens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probabilities (N, T', V) and lengths (N,) of features x (N, T, F) of lengths
        x_lens (N,).
        """
        return self.whole(x + LOUDER, x_lens)


class ZipformerChunk(nn.Module):
    """One chunk of N streams, with a state of fixed size; zeros in it are hidden until they hold
    frames.
    """

    def __init__(self, model: ASRModel, left: int) -> None:
        """Create the module; `left`: frames of the input layer that attention sees before the
        chunk.
        """
        super().__init__()
        self.encoder, self.ctc, self.left = _zipformer_encoder(model), model.ctc, left

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Compute log-probabilities (N, chunk / 2, V) of features (N, T, F), and the states after
        the chunk.

        Args:
            states: six caches for each layer, the past of the input layer (N, channels, frames,
                bins), and the number of frames seen (N,).
        """
        encoder = self.encoder
        *caches, before, seen = states
        x = x + LOUDER
        if encoder.global_cmvn is not None:
            x = encoder.global_cmvn(x)

        convolved = torch.cat((before, encoder.embed.convolve(x)), dim=2)
        frames = encoder.embed.finish(convolved)
        size = frames.size(1)
        # (N, left): the caches begin with zeros until `left` frames were seen, which are hidden.
        empty = torch.arange(self.left) < self.left - seen.unsqueeze(1)
        of_chunk = empty.new_zeros(1, 1).expand(x.size(0), size)
        blocked = torch.cat((empty, of_chunk), dim=1)[:, None, None]  # (N, 1, 1, left + size)

        ours = iter([_swap_layout(name, cache) for name, cache in _name_caches(caches)])
        stacks = [list(islice(ours, count * len(NAMES))) for count in encoder.layout.counts]
        out, caches_after = encoder.run_stacks(frames, None, blocked, size, stacks)

        theirs: list[torch.Tensor] = []
        for factor, stack in zip(encoder.factors, caches_after, strict=True):
            for name, cache in _name_caches(stack):
                if not name.startswith("cached_conv"):
                    # Attention sees as many frames as before: the oldest ones leave.
                    cache = cache[:, size // factor :]
                theirs.append(_swap_layout(name, cache))

        edge = convolved[:, :, size : size + before.size(2)]
        return self.ctc.log_softmax(out), *theirs, edge, seen + size


def _name_caches(caches: Iterable[torch.Tensor]) -> Iterable[tuple[str, torch.Tensor]]:
    """Return the caches of some layers, each with its name of NAMES."""
    return zip(cycle(NAMES), caches, strict=False)


def _swap_layout(name: str, cache: torch.Tensor) -> torch.Tensor:
    """Return a cache in the layout of sherpa-onnx, from ours (N, C, …), or back."""
    if name in TIME_FIRST:
        return cache.transpose(0, 1)
    if name == GATED:
        # Ours is (N, C, width), that of sherpa-onnx (1, N, C, width).
        return cache.squeeze(0) if cache.dim() == 4 else cache.unsqueeze(0)
    return cache


def _zipformer_encoder(model: ASRModel) -> ZipformerEncoder:
    assert isinstance(model.encoder, ZipformerEncoder), "the caller looks at the encoder"
    return model.encoder


def zipformer_graph(model: ASRModel, feature_dim: int, chunks: Chunks) -> Graph:
    """Return the graph for sherpa-onnx: `from_zipformer_ctc`, offline, or `from_zipformer2_ctc`,
    streaming.
    """
    copied = traceable(model)
    if chunks != OFFLINE:
        return _streaming_graph(copied, feature_dim, chunks)

    metadata = {
        "model_type": "zipformer2_ctc",
        "version": 1,
        "model_author": "wenet_uio",
        "comment": "non-streaming",
    }
    return Graph(
        ZipformerOffline(copied),
        {"x": torch.randn(2, 80, feature_dim), "x_lens": torch.tensor([80, 61])},
        ("log_probs", "log_probs_len"),
        {
            "x": {0: "N", 1: "T"},
            "x_lens": {0: "N"},
            "log_probs": {0: "N", 1: "T_OUT"},
            "log_probs_len": {0: "N"},
        },
        metadata,
    )


def _streaming_graph(model: ASRModel, feature_dim: int, chunks: Chunks) -> Graph:
    """Return the graph that encodes one chunk; the example has two streams."""
    encoder = _zipformer_encoder(model)
    states = start_states(encoder, chunks.cache)
    named = {name: torch.cat((state, state), dim=batch_dim(name)) for name, state in states.items()}
    window = chunks.size * encoder.embed.subsampling_rate + encoder.embed.right_context - 1
    inputs = {"x": torch.randn(2, window, feature_dim), **named}
    axes = {name: {batch_dim(name): "N"} for name in ("x", "log_probs")}
    for name in named:
        axes[name] = axes[f"new_{name}"] = {batch_dim(name): "N"}

    outputs = ("log_probs", *(f"new_{name}" for name in named))
    metadata = _streaming_metadata(encoder, chunks) | {"T": window}

    return Graph(ZipformerChunk(model, chunks.cache), inputs, outputs, axes, metadata)


def _streaming_metadata(encoder: ZipformerEncoder, chunks: Chunks) -> dict[str, object]:
    """Return what sherpa-onnx reads, except the frames of a window."""
    layout = encoder.layout
    # of each stack: heads, width of a query, width of a value
    num_heads, query_head_dims, value_head_dims = zip(*encoder.head_sizes, strict=True)
    lists = {
        "num_encoder_layers": layout.counts,
        "encoder_dims": layout.dims,
        "cnn_module_kernels": [2 * past + 1 for past in layout.pasts],
        "left_context_len": [chunks.cache // factor for factor in layout.factors],
        "num_heads": num_heads,
        "query_head_dims": query_head_dims,
        "value_head_dims": value_head_dims,
    }
    return {
        "model_type": "zipformer2",
        "version": 1,
        "model_author": "wenet_uio",
        "comment": "streaming ctc zipformer2",
        "decode_chunk_len": chunks.size * encoder.embed.subsampling_rate,
        **{name: ",".join(map(str, numbers)) for name, numbers in lists.items()},
    }


def batch_dim(name: str) -> int:
    """Return the dimension of the streams in an input or output of a streaming graph: 1 for caches
    of attention, see TIME_FIRST and GATED, else 0.
    """
    return int(name.removeprefix("new_").startswith(("cached_key", "cached_nonlin", "cached_val")))


def start_states(encoder: ZipformerEncoder, left: int) -> dict[str, torch.Tensor]:
    """Return {name: zeros} for each state at the start of an utterance, as sherpa-onnx creates
    them.

    Args:
        left: frames of the input layer that attention sees before the chunk.
    """
    layout = encoder.layout
    states: dict[str, torch.Tensor] = {}
    layer = 0  # counted over all stacks
    for stack, factor in enumerate(layout.factors):
        # A stack with a lower rate sees the same time in fewer frames.
        attention = [(1, left // factor, width) for width in layout.widths[stack]]
        convolution = (1, layout.dims[stack], layout.pasts[stack])
        shapes = dict(zip(NAMES, [*attention, convolution, convolution], strict=True))

        for _ in range(layout.counts[stack]):
            for name, shape in shapes.items():
                states[f"{name}_{layer}"] = _swap_layout(name, torch.zeros(shape)).contiguous()

            layer += 1

    states["embed_states"] = torch.zeros(1, *layout.edge_shape)
    states["processed_lens"] = torch.zeros(1, dtype=torch.int64)
    return states


@torch.inference_mode()
def compare_zipformer(
    content: bytes,
    model: ASRModel,
    examples: Iterable[tuple[str, torch.Tensor]],
    limit: int,
    chunks: Chunks,
) -> Agreement:
    """Run the first `limit` examples (key, feats (1, T, F)) with the graph as sherpa-onnx does, and
    with the model.

    In chunks, only whole chunks are compared: sherpa-onnx does not decode the last incomplete one.

    Raises:
        ValueError: there is no example.
    """
    graph, encoder = OnnxModel(content), _zipformer_encoder(model)

    def compare_one(key: str, feats: torch.Tensor) -> tuple[float, int, Difference | None]:
        """Return the largest difference of scores, the number of tokens expected, and the texts if
        they differ.
        """
        lengths = torch.tensor([feats.size(1)])
        expected, _ = model.encode(
            feats, lengths, chunks.size, chunks.left, simulate_streaming=chunks != OFFLINE
        )
        log_probs = model.ctc_log_probs(expected)

        # The graph adds LOUDER to the features of sherpa-onnx, so these are its equals.
        quiet_feats = feats - LOUDER
        if chunks == OFFLINE:
            exported = graph(x=quiet_feats, x_lens=lengths)[0]
        else:
            exported = _stream_chunks(graph, encoder, quiet_feats, chunks)
            log_probs = log_probs[:, : exported.size(1)]

        if exported.shape != log_probs.shape:
            return math.inf, 0, None  # no limit allows this

        expected_tokens, exported_tokens = (
            _greedy_tokens(scores, model.blank) for scores in (log_probs, exported)
        )
        largest = (log_probs - exported).abs().amax().item() if exported.numel() else 0.0
        other_text = None
        if expected_tokens != exported_tokens:
            other_text = Difference(key, GREEDY, expected_tokens, exported_tokens)

        return largest, len(expected_tokens), other_text

    return compare_examples(examples, limit, compare_one)


def _greedy_tokens(log_probs: torch.Tensor, blank: int) -> tuple[int, ...]:
    return ctc_greedy_search(log_probs, torch.tensor([log_probs.size(1)]), blank)[0][0].tokens


def _stream_chunks(
    graph: OnnxModel, encoder: ZipformerEncoder, feats: torch.Tensor, chunks: Chunks
) -> torch.Tensor:
    """Return log-probabilities (1, T', V) of the whole chunks of an utterance."""
    window, shift = int(graph.metadata["T"]), int(graph.metadata["decode_chunk_len"])
    states = start_states(encoder, chunks.cache)
    outputs: list[torch.Tensor] = []
    for start in range(0, feats.size(1) - window + 1, shift):
        answer = graph(x=feats[:, start : start + window], **states)
        outputs.append(answer[0])
        states = dict(zip(states, answer[1:], strict=True))

    return torch.cat(outputs, dim=1) if outputs else torch.zeros(1, 0, 1)
