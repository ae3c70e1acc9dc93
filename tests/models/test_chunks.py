"""Chunks of several streams in one batch equal those of each stream alone."""

from __future__ import annotations

import random

import pytest
import torch

from tests.models.test_streaming import BRANCH, KINDS
from wenet_uio.models.chunks import ChunkEncoder, encode_chunk_by_chunk, encode_chunks

MORE = {
    "conformer with absolute positions": (
        "conformer",
        {
            "linear_units": 32,
            "causal": True,
            "pos_enc_layer_type": "abs_pos",
            "selfattention_layer_type": "selfattn",
        },
    ),
    "conformer without positions": (
        "conformer",
        {
            "linear_units": 32,
            "causal": True,
            "pos_enc_layer_type": "no_pos",
            "selfattention_layer_type": "selfattn",
        },
    ),
    "conformer without convolutions": ("conformer", {"linear_units": 32, "use_cnn_module": False}),
    "conformer with batch norm": (
        "conformer",
        {
            "linear_units": 32,
            "causal": True,
            "cnn_module_norm": "batch_norm",
            "cnn_module_kernel": 5,
        },
    ),
    "branchformer of one branch": ("branchformer", {**BRANCH, "use_cgmlp": False}),
    "conformer with rotary positions and shared keys": (
        "conformer",
        {"linear_units": 32, "causal": True, "n_kv_head": 1}
        | {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn"},
    ),
    "conformer with embedded distances": (
        "conformer",
        {"linear_units": 32, "causal": True, "input_layer": "stack_n_frames"}
        | {"pos_enc_layer_type": "no_pos", "selfattention_layer_type": "shaw_rel_selfattn"},
    ),
    "conformer with experts": (
        "conformer",
        {
            "linear_units": 32,
            "causal": True,
            "mlp_type": "moe",
            "n_expert": 3,
            "layer_norm_type": "rms_norm",
        },
    ),
    "conformer at the full rate": (
        "conformer",
        {"linear_units": 32, "causal": True, "input_layer": "linear"},
    ),
}
ALL = KINDS | MORE


def one_by_one(model, feats, chunk, left):
    return encode_chunk_by_chunk(model.encoder, feats, chunk, left)


def together(model, feats, chunks, draw):
    """Encode streams that arrive in parts of random length; each step has a random part of those
    that are ready.
    """
    streams = [ChunkEncoder(model.encoder, chunk, left) for chunk, left in chunks]
    outputs = [[] for _ in streams]
    given = [0] * len(streams)
    sizes = []
    while True:
        for place, stream in enumerate(streams):
            end = min(given[place] + draw.randint(0, 60), feats[place].size(1))
            if end > given[place]:
                stream.put(feats[place][:, given[place] : end])
            given[place] = end
            if end == feats[place].size(1):
                stream.end()
        ready = [place for place, stream in enumerate(streams) if not stream.missing]
        if not ready and all(end == each.size(1) for end, each in zip(given, feats, strict=True)):
            return [torch.cat(each, dim=1) for each in outputs], sizes
        ready = draw.sample(ready, draw.randint(0, len(ready)))
        sizes.append(len(ready))
        for place, output in zip(
            ready, encode_chunks([streams[place] for place in ready]), strict=True
        ):
            outputs[place].append(output)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("kind", "left"),
    [
        pytest.param(kind, left, marks=() if usual else pytest.mark.all)
        for number, kind in enumerate(ALL)
        for left, usual in ((-1, number % 2), (2, not number % 2))
    ],
)
def test_streams_of_a_batch_equal_streams_alone(make_encoder_model, kind, left):
    encoder, conf = ALL[kind]
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    draw = random.Random(kind)
    feats = [torch.randn(1, draw.randint(30, 120), 40) for _ in range(5)]
    found, sizes = together(model, feats, [(4, left)] * 5, draw)
    assert max(sizes) > 2
    for each, output in zip(feats, found, strict=True):
        torch.testing.assert_close(output, one_by_one(model, each, 4, left), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["conformer", "squeezeformer"])
def test_streams_of_a_batch_may_have_chunks_of_their_own(make_encoder_model, kind):
    encoder, conf = KINDS[kind]
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    chunks = [(4, 2), (8, -1), (4, 0), (1, 3), (8, 1)]
    feats = [torch.randn(1, 150, 40) for _ in chunks]
    found, _ = together(model, feats, chunks, random.Random(1))
    for each, output, chunk in zip(feats, found, chunks, strict=True):
        torch.testing.assert_close(output, one_by_one(model, each, *chunk), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_batch_of_far_streams_equals_streams_alone(make_encoder_model):
    """Positions beyond the table of the checkpoint."""
    encoder, conf = KINDS["conformer"]
    model = make_encoder_model(
        encoder, {**conf, "input_layer": "linear", "use_dynamic_chunk": True}
    )
    feats = [torch.randn(1, frames, 40) for frames in (5300, 5100)]
    streams = [ChunkEncoder(model.encoder, 100, 2) for _ in feats]
    outputs = []
    for stream, each in zip(streams, feats, strict=True):
        stream.put(each)
    while not any(stream.missing for stream in streams):
        outputs.append(encode_chunks(streams))
    for place, each in enumerate(feats):
        expected = one_by_one(model, each, 100, 2)[:, : 100 * len(outputs)]
        found = torch.cat([output[place] for output in outputs], dim=1)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_a_stream_that_starts_again_equals_a_new_one(make_encoder_model):
    encoder, conf = KINDS["conformer"]
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    feats = torch.randn(1, 120, 40)
    stream = ChunkEncoder(model.encoder, 4, -1)
    stream.put(feats)
    encode_chunks([stream])
    stream.restart()
    found = encode_chunks([stream])[0]
    torch.testing.assert_close(found, one_by_one(model, feats[:, 16:], 4, -1)[:, :4])


@torch.inference_mode()
def test_a_stream_keeps_nothing_of_the_others_of_its_batch(make_encoder_model):
    encoder, conf = KINDS["conformer"]
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    streams = [ChunkEncoder(model.encoder, 4, -1) for _ in range(5)]
    for stream in streams:
        stream.put(torch.randn(1, 60, 40))
    for kept in (*encode_chunks(streams), *streams[0].caches):
        assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()


def test_no_streams_encode_to_nothing():
    assert encode_chunks([]) == []
