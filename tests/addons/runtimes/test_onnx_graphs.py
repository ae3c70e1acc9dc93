"""ONNX graphs, run by onnxruntime as the C++ runtimes run them, give the numbers of the
checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.export.conftest import make_case, make_examples
from wenet_uio.addons.runtimes.onnx_files import to_int8, to_onnx
from wenet_uio.addons.runtimes.onnx_graphs import check_onnx_chunks, sherpa_graph, wenet_graphs
from wenet_uio.addons.runtimes.onnx_models import OnnxModel, SherpaOnnx, WenetOnnx
from wenet_uio.export.check import GREEDY, MODES, Limits, compare, judge, recognise_all
from wenet_uio.export.chunks import OFFLINE, Chunks, check_chunks
from wenet_uio.export.exported import ExportedModel
from wenet_uio.search import DecodeOptions

WENET = [
    ("transformer", OFFLINE),
    ("u2pp", OFFLINE),
    ("transformer", Chunks(4, 2)),
    ("u2pp", Chunks(4, 2)),
    ("u2pp", Chunks(4, 0)),
    ("u2pp", Chunks(1, 4)),
    ("u2pp", Chunks(4, -1)),
    ("streaming_branchformer", Chunks(4, 2)),
    ("streaming_e_branchformer", Chunks(4, 2)),
    ("streaming_squeezeformer", Chunks(4, 2)),
]
"""All ways to make a graph, and the encoders with chunks: the graph of sherpa-onnx calls the same
method."""
SHERPA = [
    ("transformer", OFFLINE),
    ("conformer", OFFLINE),
    ("u2pp", OFFLINE),
    ("branchformer", OFFLINE),
    ("e_branchformer", OFFLINE),
    ("squeezeformer", OFFLINE),
    ("efficient", OFFLINE),
    ("firered", OFFLINE),
    ("u2pp", Chunks(4, 2)),
    ("u2pp", Chunks(4, 0)),
]
"""All ways to make a graph, and the encoders of whole utterances: the graph of WeNet calls the same
method."""
LENGTHS = {"conv1d2": [47, 36, 3], "efficient": [11, 9, 0]}
"""Encoder frames of inputs of 93, 71 and 5 frames, where there are others than after conv2d."""


def options_of(chunks):
    return DecodeOptions(decoding_chunk_size=chunks.size, num_decoding_left_chunks=chunks.left)


model_of = cache(make_case)
"""Models that no test changes."""


@cache
def wenet_contents(case, chunks):
    """Files of one of CASES, which are exported once for all tests of this process."""
    return {
        "encoder.onnx": to_onnx(wenet_graphs(model_of(case), 40, chunks)["encoder.onnx"]),
        **decoder_contents(case),
    }


def decoder_contents(case):
    """ctc.onnx and decoder.onnx, which depend on the kind of the decoder alone."""
    return contents_of("u2pp" if model_of(case).decoder.bidirectional else "transformer")


@cache
def contents_of(case):
    graphs = wenet_graphs(model_of(case), 40, OFFLINE)
    return {name: to_onnx(graphs[name]) for name in ("ctc.onnx", "decoder.onnx")}


@cache
def wenet_model(case, chunks):
    return ExportedModel(WenetOnnx(wenet_contents(case, chunks)), model_of(case))


@cache
def sherpa_model(case, chunks):
    return SherpaOnnx(to_onnx(sherpa_graph(model_of(case), 40, chunks)), model_of(case))


@cache
def references(case, chunks):
    return recognise_all(model_of(case), make_examples(), 3, options_of(chunks))


@pytest.mark.parametrize(
    ("case", "chunks"),
    [
        pytest.param(*each, marks=pytest.mark.all if number % 3 else ())
        for number, each in enumerate(WENET)
    ],
)
def test_the_wenet_graphs_decode_as_the_checkpoint(case, chunks):
    agreement = compare(wenet_model(case, chunks), references(case, chunks), options_of(chunks))
    assert agreement.differences == ()
    assert agreement.largest < 1e-4


@pytest.mark.parametrize(
    ("case", "chunks"),
    [
        pytest.param(*each, marks=pytest.mark.all if number % 3 else ())
        for number, each in enumerate(SHERPA)
    ],
)
def test_the_sherpa_graph_gives_the_log_probabilities_of_the_checkpoint(case, chunks):
    agreement = compare(
        sherpa_model(case, chunks), references(case, chunks), options_of(chunks), modes=(GREEDY,)
    )
    assert agreement.differences == ()
    assert agreement.largest < 1e-4


def forget(monkeypatch, *caches):
    """Multiply outputs of streaming encoders by 0; 1 is the attention cache, 2 the convolution
    cache.
    """
    call = OnnxModel.__call__

    def forgetful(model, **inputs):
        outputs = call(model, **inputs)
        return [
            output * (len(outputs) < 3 or number not in caches)
            for number, output in enumerate(outputs)
        ]

    monkeypatch.setattr(OnnxModel, "__call__", forgetful)


@pytest.mark.third
@pytest.mark.parametrize("caches", [(1, 2), (1,), (2,)], ids=["both", "attention", "convolution"])
@pytest.mark.parametrize("chunks", [Chunks(4, 2), Chunks(4, -1)], ids=["2 left", "all left"])
def test_the_check_of_short_audio_finds_a_streaming_graph_without_caches(
    examples, monkeypatch, chunks, caches
):
    options = options_of(chunks)
    # 2 of the 4 encoder frames of a chunk
    short = [(key, feats[:, :11]) for key, feats in examples]
    expected = recognise_all(model_of("u2pp"), short, 3, options)
    ways = {"wenet": (wenet_model("u2pp", chunks), MODES)}
    if chunks.left >= 0:
        ways["sherpa"] = (sherpa_model("u2pp", chunks), (GREEDY,))
    for exported, modes in ways.values():
        judge("streaming", compare(exported, expected, options, modes), Limits(), str)
    forget(monkeypatch, *caches)
    for exported, modes in ways.values():
        with pytest.raises(ValueError, match="not written"):
            judge("streaming", compare(exported, expected, options, modes), Limits(), str)


def test_inputs_have_the_names_and_the_order_of_the_runtimes():
    names = ["offset", "required_cache_size", "attn_cache", "conv_cache", "attn_mask"]
    assert sherpa_model("u2pp", Chunks(4, 2)).graph.inputs == ["x", *names]
    names = ["offset", "required_cache_size", "att_cache", "cnn_cache", "att_mask"]
    assert wenet_model("u2pp", Chunks(4, 2)).runtime.encoder.inputs == ["chunk", *names]
    growing = wenet_model("u2pp", Chunks(4, -1)).runtime.encoder
    assert growing.inputs == ["chunk", "offset", "att_cache", "cnn_cache"]


def test_files_have_the_metadata_that_the_runtimes_read():
    encoder = wenet_model("u2pp", Chunks(4, 2)).runtime.encoder.metadata
    streaming = {
        "chunk_size": "4",
        "left_chunks": "2",
        "head": "2",
        "num_blocks": "2",
        "output_size": "16",
    }
    streaming |= {"cnn_module_kernel": "8", "right_context": "6", "vocab_size": "12"}
    assert encoder == streaming | {
        "batch": "1",
        "feature_size": "40",
        "subsampling_rate": "4",
        "sos_symbol": "11",
        "eos_symbol": "11",
        "is_bidirectional_decoder": "1",
        "reverse_weight": "0.3",
    }
    always = {
        "model_type": "wenet_ctc",
        "version": "1",
        "model_author": "wenet_uio",
        "subsampling_factor": "4",
    }
    sherpa = sherpa_model("u2pp", Chunks(4, 2)).graph.metadata
    assert sherpa == streaming | always | {"comment": "streaming"}
    offline = sherpa_model("u2pp", OFFLINE).graph.metadata
    assert offline == always | {"comment": "non-streaming", "vocab_size": "12"}


@torch.no_grad()
@pytest.mark.parametrize(
    "case", ["conv1d2", "conformer", "u2pp", "e_branchformer", "squeezeformer", "efficient"]
)
def test_offline_graph_takes_a_padded_batch_and_an_utterance_below_one_window(case):
    model = model_of(case)
    feats, lengths = torch.randn(3, 93, 40), torch.tensor([93, 71, 5])
    graph = sherpa_model(case, OFFLINE).graph
    found, found_lengths = graph(x=feats, x_lens=lengths)
    encoder_out, expected_lengths = model.encode(feats, lengths)
    assert found_lengths.tolist() == expected_lengths.tolist() == LENGTHS.get(case, [22, 17, 0])
    expected = model.ctc_log_probs(encoder_out)
    for row, length in enumerate(expected_lengths.tolist()):
        torch.testing.assert_close(
            found[row, :length], expected[row, :length], atol=1e-4, rtol=1e-4
        )
    short = graph(x=feats[:1, :3], x_lens=torch.tensor([3]))
    assert short[1].tolist() == [2 if case == "conv1d2" else 0]


@torch.no_grad()
def test_streams_continue_beyond_the_table_of_positions():
    model = make_case("u2pp")
    encoder = wenet_model("u2pp", Chunks(4, 2)).runtime.encoder
    frames, _, cnn_cache = encoder.start()
    att_cache, xs, offset = torch.randn(2, 2, frames, 16), torch.randn(1, 19, 40), 6000
    expected = model.encoder.forward_chunk(xs, offset, frames, att_cache, cnn_cache)
    found = encoder(
        chunk=xs,
        offset=torch.tensor(frames + offset),
        required_cache_size=torch.tensor(frames),
        att_cache=att_cache,
        cnn_cache=cnn_cache,
        att_mask=encoder.attention_mask(offset, frames),
    )
    for theirs, ours in zip(found, expected, strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)


def test_int8_graphs_stay_near_the_checkpoint():
    int8 = {name: to_int8(content) for name, content in wenet_contents("u2pp", OFFLINE).items()}
    exported = ExportedModel(WenetOnnx(int8), model_of("u2pp"))
    agreement = compare(exported, references("u2pp", OFFLINE), options_of(OFFLINE))
    assert 0 < agreement.largest < 0.2


def test_an_export_does_not_change_the_model(examples):
    model, other = model_of("u2pp"), make_case("u2pp")
    assert wenet_contents("u2pp", Chunks(4, 2)).keys() == {
        "encoder.onnx",
        "ctc.onnx",
        "decoder.onnx",
    }
    assert sherpa_model("u2pp", OFFLINE)
    assert not model.training
    feats = examples[0][1]
    with torch.no_grad():
        results = [
            each.encode(feats, torch.tensor([feats.size(1)]), 4, 2)[0] for each in (model, other)
        ]
    assert torch.equal(*results)
    weights = other.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_chunks_that_a_model_does_not_support_are_refused(make_model):
    check_chunks(make_model("streaming_efficient"), Chunks(6, 4))
    with pytest.raises(
        ValueError, match="lowers the frame rate or joins frames to groups: stream with TorchScript"
    ):
        check_onnx_chunks(make_model("streaming_efficient"), Chunks(6, 4))
    with pytest.raises(ValueError, match="future frames; train with causal: true"):
        check_chunks(make_model("conformer"), Chunks(16, 4))
    with pytest.raises(ValueError, match="--chunk_size: expected 1 or more"):
        check_chunks(make_model("u2pp"), Chunks(-1, 4))
    fixed = make_model("u2pp")
    fixed.encoder.traits = replace(fixed.encoder.traits, static_chunk_size=8)
    check_chunks(fixed, Chunks(8, 4))
    with pytest.raises(ValueError, match="--chunk_size 8"):
        check_chunks(fixed, Chunks(16, 4))
    check_chunks(make_model("transformer"), Chunks(16, 4))
    check_onnx_chunks(make_model("streaming_squeezeformer"), Chunks(16, 4))
    with pytest.raises(ValueError, match="--chunk_size 5 is not a multiple of 2"):
        check_onnx_chunks(make_model("streaming_squeezeformer"), Chunks(5, 4))
    wide = make_model("streaming_squeezeformer")
    wide.encoder.traits = replace(wide.encoder.traits, output_size=24)
    with pytest.raises(ValueError, match="train with equal widths"):
        check_onnx_chunks(wide, Chunks(4, 4))
