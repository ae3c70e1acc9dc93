"""Attention with rotary positions, shared keys or embedded distances."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.export.chunks import Chunks
from wenet_uio.models.attention import turned
from wenet_uio.models.embedding import ROTARY_TABLE_LENGTH, RotaryPositionalEncoding

ROPE = {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn"}
KINDS = {
    "rotary": ROPE,
    "rotary with shared keys": {**ROPE, "n_kv_head": 1},
    "shared keys": {"n_kv_head": 1},
    "distances": {"selfattention_layer_type": "shaw_rel_selfattn", "pos_enc_layer_type": "no_pos"},
    "stacked frames": {"input_layer": "stack_n_frames"},
}


def encoding() -> RotaryPositionalEncoding:
    return RotaryPositionalEncoding(16, 0.0, 8)


def test_scores_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(place: int, other: int) -> float:
        angles = [encoding().position_encoding(number, 1, query) for number in (place, other)]
        return float((turned(query, angles[0]) * turned(key, angles[1])).sum())

    assert score(7, 3) == pytest.approx(score(107, 103), abs=1e-4)
    assert score(7, 3) != pytest.approx(score(3, 7), abs=1e-3)


def test_positions_outside_of_the_table_are_computed() -> None:
    like = torch.zeros(1)
    inside = encoding().position_encoding(ROTARY_TABLE_LENGTH - 3, 3, like)
    across = encoding().position_encoding(ROTARY_TABLE_LENGTH - 3, 5, like)
    assert across.shape == (1, 5, 4, 2)
    torch.testing.assert_close(across[:, :3], inside)
    before = encoding().position_encoding(-2, 4, like)
    torch.testing.assert_close(before[:, 2:], encoding().position_encoding(0, 2, like))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_stream_equals_the_pass_with_a_chunk_mask(kind, make_model, causal_conf) -> None:
    model = make_model(encoder_conf={**causal_conf, **KINDS[kind]})
    feats, length = torch.randn(1, 150, 40), torch.tensor([150])
    for chunk, left in ((4, -1), (3, 2), (100, 0)):
        masked, frames = model.encode(feats, length, chunk, left)
        stream, _ = model.encode(feats, length, chunk, left, simulate_streaming=True)
        torch.testing.assert_close(stream[0], masked[0, : int(frames)], atol=1e-5, rtol=1e-4)


def test_a_cache_holds_the_shared_keys_only(make_model, causal_conf) -> None:
    encoder = make_model(encoder_conf={**causal_conf, "n_kv_head": 1}).encoder
    empty = torch.zeros(0, 0, 0, 0)
    _, att_cache, _ = encoder.forward_chunk(torch.randn(1, 19, 40), 0, -1, empty, empty)
    assert att_cache.shape == (2, 1, 4, 16)


def test_onnx_runtimes_do_not_stream_shared_keys(make_model, causal_conf) -> None:
    from wenet_uio.addons.runtimes.onnx_graphs import check_onnx_chunks

    model = make_model(encoder_conf={**causal_conf, "n_kv_head": 1})
    with pytest.raises(ValueError, match="heads of this model share keys"):
        check_onnx_chunks(model, Chunks(16, 4))


@pytest.mark.parametrize("encoder", ["conformer", "transformer", "branchformer"])
def test_conv1d2_says_why_it_cannot_stream(encoder, make_encoder_model) -> None:
    model = make_encoder_model(
        encoder, {"input_layer": "conv1d2", "use_dynamic_chunk": True} | CAUSAL[encoder]
    )
    with pytest.raises(ValueError, match="simulate_streaming: input_layer conv1d2 pads each chunk"):
        model.encode(torch.randn(1, 50, 40), torch.tensor([50]), 4, -1, simulate_streaming=True)


CAUSAL = {"conformer": {"causal": True}, "transformer": {}, "branchformer": {"causal": True}}


@pytest.mark.parametrize("layer", ["conv1d2", "conv2d2", "stack_n_frames"])
@pytest.mark.parametrize("frames", [1, 2, 3, 5])
@torch.no_grad()
def test_very_short_input_has_few_or_no_frames(layer, frames, make_model) -> None:
    model = make_model(encoder_conf={"input_layer": layer})
    encoder_out, lengths = model.encode(torch.randn(1, frames, 40), torch.tensor([frames]))
    assert 0 <= int(lengths) <= encoder_out.size(1) <= 3
    assert encoder_out.isfinite().all()
