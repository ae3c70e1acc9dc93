"""ONNX graphs for streams: whatever the chunks, caches and batches, the frames of the checkpoint."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from tests.export.conftest import make_case, make_examples
from wenet_uio.addons.runtimes.onnx_files import to_int8, to_onnx
from wenet_uio.addons.runtimes.onnx_graphs import streams_graphs
from wenet_uio.addons.runtimes.onnx_models import StreamsOnnx
from wenet_uio.export.check import compare, recognise_all
from wenet_uio.export.exported import FOR_STREAMS, ExportedModel
from wenet_uio.models.chunks import ChunkEncoder, encode_chunks
from wenet_uio.search import DecodeOptions

TOGETHER = [
    *("transformer", "u2pp", "streaming_branchformer", "streaming_e_branchformer"),
    *("rotary", "shared_heads", "no_positions", "conv2d6"),
]
ONE_BY_ONE = ["streaming_efficient", "streaming_squeezeformer"]


@cache
def both(case):
    """A checkpoint, and its export for streams."""
    model, contents = exported(case)
    return model, StreamsOnnx(contents, model.encoder)


@cache
def exported(case):
    """A checkpoint, and the files of its export for streams."""
    model = make_case(case)
    return model, {name: to_onnx(graph) for name, graph in streams_graphs(model, 40).items()}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.all if number % 3 else ())
        for number, case in enumerate(TOGETHER)
    ],
)
def test_streams_with_any_chunks_and_histories_have_the_frames_of_the_checkpoint(case):
    model, streams = both(case)
    draw = random.Random(case)
    torch.manual_seed(1)
    pairs = []
    for _ in range(7):
        chunks = draw.choice([1, 4, 4, 5]), draw.choice([-1, 0, 2])
        encoders = [ChunkEncoder(each, *chunks) for each in (model.encoder, streams.streams)]
        pairs.append((*encoders, torch.randn(1, draw.randint(1, 120), 40)))

    waiting, compared = list(pairs), 0
    while waiting:
        # Streams begin and end at different times: each step advances some of them.
        chosen = draw.sample(waiting, draw.randint(1, len(waiting)))
        for trained, exported, feats in chosen:
            if not trained.offset and trained._feats is None:
                for encoder in (trained, exported):
                    encoder.put(feats)
                    encoder.end()
        ready = [pair for pair in chosen if not pair[0].missing]
        with torch.inference_mode():
            expected = [encode_chunks([trained])[0] for trained, _, _ in ready]
            joined = encode_chunks([exported for _, exported, _ in ready])
        for (trained, exported, _), frames, exported_frames in zip(
            ready, expected, joined, strict=True
        ):
            torch.testing.assert_close(exported_frames, frames, atol=1e-5, rtol=1e-4)
            for trained_cache, exported_cache in zip(trained.caches, exported.caches, strict=True):
                torch.testing.assert_close(exported_cache, trained_cache, atol=1e-5, rtol=1e-4)
            compared += 1
        waiting = [pair for pair in waiting if pair not in chosen or not pair[0].missing]
    assert compared > 10


@pytest.mark.third
@pytest.mark.parametrize("case", TOGETHER)
@pytest.mark.parametrize("chunks", [(-1, -1), (4, 2), (3, -1), (8, 0)])
def test_one_graph_decodes_whole_utterances_and_all_chunks_as_the_checkpoint(case, chunks):
    model, streams = both(case)
    size, left = chunks
    options = DecodeOptions(decoding_chunk_size=size, num_decoding_left_chunks=left)
    references = recognise_all(model, make_examples(), 3, options)
    agreement = compare(ExportedModel(streams, model), references, options)
    assert agreement.differences == ()
    assert agreement.largest < 1e-4


def test_frames_of_a_stream_depend_on_the_others_in_int8_only():
    model, contents = exported("u2pp")
    in_int8 = {name: to_int8(content) for name, content in contents.items()}
    torch.manual_seed(0)
    quiet, loud = torch.randn(1, 67, 40), 8 * torch.randn(1, 67, 40)

    changes = []
    for files in (contents, in_int8):
        encoder = StreamsOnnx(files, model.encoder).streams
        alone, beside_loud = (first_chunk(encoder, feats)[0] for feats in ([quiet], [quiet, loud]))
        changes.append(float((beside_loud - alone).abs().max()))

    of_float, of_int8 = changes
    assert of_float < 1e-5
    assert of_int8 > 1e-3


def first_chunk(encoder, features):
    """Frames of the first chunk of streams with some features (1, T, F), in one call."""
    streams = [ChunkEncoder(encoder, 16, -1) for _ in features]
    for stream, feats in zip(streams, features, strict=True):
        stream.put(feats)
        stream.end()

    return encode_chunks(streams)


@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_encoders_that_take_streams_one_by_one_are_refused(case):
    with pytest.raises(ValueError, match="--runtimes streams: this encoder takes the chunks of"):
        streams_graphs(make_case(case), 40)


def test_the_encoders_with_an_export_for_streams_are_those_that_take_streams_together():
    for case in (*TOGETHER, *ONE_BY_ONE):
        traits = make_case(case).encoder.traits
        assert traits.trained_in_chunks
        assert traits.batches_chunks == (case in TOGETHER)


@pytest.mark.parametrize("other", ["transformer", "rotary", "conv2d6", "streaming_branchformer"])
def test_an_export_with_the_config_of_another_model_is_refused_when_it_is_opened(other):
    _, contents = exported("u2pp")
    with pytest.raises(
        ValueError, match=r"^streams.onnx: \w+ .*: they are of different models; put"
    ):
        StreamsOnnx(contents, make_case(other).encoder)


@pytest.mark.parametrize("name", FOR_STREAMS)
@pytest.mark.parametrize("kept", [0, 1000])
def test_a_damaged_file_is_named(name, kept):
    model, contents = exported("u2pp")
    cut = {**contents, name: contents[name][:kept]}
    with pytest.raises(
        ValueError, match=f"^{name}: onnxruntime .* cannot open it .*export"
    ) as error:
        StreamsOnnx(cut, model.encoder)
    assert "\n" not in str(error.value)
