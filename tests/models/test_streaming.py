"""Streaming equals one pass with a chunk mask for every encoder that can stream; the others name
the obstacle.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

BRANCH = {"cgmlp_linear_units": 24, "cgmlp_conv_kernel": 5, "causal": True}
SQUEEZE = {
    "encoder_dim": 16,
    "num_blocks": 4,
    "reduce_idx": 1,
    "recover_idx": 3,
    "cnn_module_kernel": 6,
    "cnn_norm_type": "layer_norm",
    "time_reduction_layer_type": "stream",
    "do_rel_shift": False,
    "causal": True,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {"linear_units": 32}),
    "conformer": ("conformer", {"linear_units": 32, "causal": True, "cnn_module_kernel": 8}),
    "conformer with dwconv2d8": (
        "conformer",
        {"causal": True, "cnn_module_kernel": 8, "input_layer": "dwconv2d8"},
    ),
    "branchformer": ("branchformer", {**BRANCH, "use_linear_after_conv": True}),
    "branchformer of single branches": (
        "branchformer",
        {**BRANCH, "num_blocks": 3, "merge_method": "fixed_ave", "cgmlp_weight": [0.0, 1.0, 0.4]},
    ),
    "e_branchformer": ("e_branchformer", {**BRANCH, "linear_units": 32, "merge_conv_kernel": 4}),
    "e_branchformer with conv2d8": (
        "e_branchformer",
        {**BRANCH, "linear_units": 32, "input_layer": "conv2d8"},
    ),
    "squeezeformer": ("squeezeformer", SQUEEZE),
    "squeezeformer at a quarter of the rate": (
        "squeezeformer",
        {
            **SQUEEZE,
            "num_blocks": 6,
            "reduce_idx": [1, 2],
            "recover_idx": [4, 5],
            "encoder_dim": 24,
        },
    ),
    "squeezeformer without reduction": (
        "squeezeformer",
        {**SQUEEZE, "reduce_idx": None, "recover_idx": None},
    ),
}


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize(("chunk", "left"), [(1, 4), (4, -1), (5, -1), (5, 2), (16, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_streaming_equals_one_pass_with_a_chunk_mask(make_encoder_model, kind, chunk, left):
    encoder, conf = KINDS[kind]
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    feats, lengths = torch.randn(1, 203, 40), torch.tensor([203])
    masked, masked_lengths = model.encode(feats, lengths, chunk, left)
    streamed, streamed_lengths = model.encode(feats, lengths, chunk, left, simulate_streaming=True)
    assert torch.equal(streamed_lengths, masked_lengths)
    torch.testing.assert_close(streamed, masked, atol=1e-4, rtol=1e-4)
    full, _ = model.encode(feats, lengths)
    if chunk < masked.size(1):
        assert not torch.allclose(full, masked, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_of_fixed_size_with_a_mask_gives_the_same_frames(make_encoder_model, kind):
    encoder, conf = KINDS[kind]
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    chunk, left = 4, 3
    feats = torch.randn(1, 203, 40)
    expected, _ = model.encode(feats, torch.tensor([203]), chunk, left)
    embed, size = model.encoder.embed, chunk * left
    heads, width = model.encoder.traits.heads, model.encoder.traits.width
    att_cache = torch.zeros(len(model.encoder.encoders), heads, size, 2 * width // heads)
    cnn_cache = torch.zeros(
        len(model.encoder.encoders), 1, width, model.encoder.traits.cnn_cache_frames
    )
    outputs = []
    for number in range(expected.size(1) // chunk):
        start = number * chunk * embed.subsampling_rate
        window = feats[
            :, start : start + (chunk - 1) * embed.subsampling_rate + embed.right_context + 1
        ]
        heard = torch.arange(size + chunk) >= size - number * chunk
        output, att_cache, cnn_cache = model.encoder.forward_chunk(
            window, number * chunk, size, att_cache, cnn_cache, heard.view(1, 1, -1)
        )
        assert att_cache.size(2) == size
        outputs.append(output)
    found = torch.cat(outputs, dim=1)
    torch.testing.assert_close(found, expected[:, : found.size(1)], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("encoder", "conf", "message"),
    [
        ("conformer", {"linear_units": 32}, "sees future frames; train with causal: true"),
        (
            "branchformer",
            {**BRANCH, "causal": False},
            "sees future frames; train with causal: true",
        ),
        (
            "branchformer",
            {**BRANCH, "merge_method": "learned_ave"},
            "learned_ave weighs the branches by the whole",
        ),
        (
            "e_branchformer",
            {**BRANCH, "linear_units": 32, "causal": False},
            "sees future frames; train with causal",
        ),
        (
            "squeezeformer",
            {**SQUEEZE, "causal": False, "cnn_module_kernel": 5},
            "sees future frames; train with causal",
        ),
        ("squeezeformer", {**SQUEEZE, "do_rel_shift": True}, "train with do_rel_shift: false"),
        (
            "squeezeformer",
            {**SQUEEZE, "time_reduction_layer_type": "conv1d"},
            "conv1d sees future frames; train with",
        ),
    ],
)
def test_an_encoder_that_cannot_stream_names_the_obstacle(
    make_encoder_model, encoder, conf, message
):
    model = make_encoder_model(encoder, {**conf, "use_dynamic_chunk": True})
    with pytest.raises(ValueError, match=f"simulate_streaming: .*{message}"):
        model.encode(torch.randn(1, 80, 40), torch.tensor([80]), 4, 2, simulate_streaming=True)
