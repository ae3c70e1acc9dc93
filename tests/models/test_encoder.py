"""Encoders: streaming equals one masked pass; chunks, positions, short input."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.models.embedding import WhisperPositionalEncoding
from wenet_uio.models.masks import draw_chunk


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("input_layer", ["conv2d", "conv2d6", "conv2d8", "linear", "dwconv2d4"])
@pytest.mark.parametrize(("chunk", "left"), [(1, 4), (4, -1), (4, 2), (16, 1)])
def test_streaming_equals_one_pass_with_a_chunk_mask(
    make_model, causal_conf, chunk, left, input_layer
):
    model = make_model(encoder_conf={**causal_conf, "input_layer": input_layer})
    feats, lengths = torch.randn(2, 150, 40), torch.tensor([150, 120])
    masked, masked_lengths = model.encode(feats, lengths, chunk, left)
    streamed, streamed_lengths = model.encode(feats, lengths, chunk, left, simulate_streaming=True)
    assert torch.equal(streamed_lengths, masked_lengths)
    for one, other, length in zip(masked, streamed, masked_lengths.tolist(), strict=True):
        torch.testing.assert_close(one[:length], other[:length], atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["selfattn", "rel_selfattn"])
@pytest.mark.parametrize("pos_enc", ["abs_pos", "rel_pos", "no_pos"])
def test_every_position_encoding_streams_with_every_attention(make_model, pos_enc, attention):
    kinds = {"pos_enc_layer_type": pos_enc, "selfattention_layer_type": attention}
    model = make_model("transformer", encoder_conf={"use_dynamic_chunk": True, **kinds})
    feats, lengths = torch.randn(1, 90, 40), torch.tensor([90])
    masked, _ = model.encode(feats, lengths, 4, 2)
    streamed, _ = model.encode(feats, lengths, 4, 2, simulate_streaming=True)
    torch.testing.assert_close(masked, streamed, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_streaming_continues_beyond_the_table_of_positions(make_model, causal_conf):
    model = make_model(encoder_conf=causal_conf)
    model.encoder.embed.pos_enc.pe = model.encoder.embed.pos_enc.pe[:, :10]
    table = make_model(encoder_conf=causal_conf)
    feats, lengths = torch.randn(1, 150, 40), torch.tensor([150])
    torch.testing.assert_close(
        model.encode(feats, lengths, 4, 2)[0], table.encode(feats, lengths, 4, 2)[0]
    )


@torch.no_grad()
@pytest.mark.parametrize(("offset", "size"), [(0, 9), (0, 1500), (0, 2000), (1490, 40), (1600, 5)])
def test_the_encoding_of_a_position_does_not_depend_on_the_length_of_the_input(offset, size):
    """Also with a table that is not the formula: published tables are rounded."""
    positions = WhisperPositionalEncoding(8, 0.0)
    positions.pe += torch.randn(1, 1500, 8)
    like = torch.zeros(1)
    every = torch.cat([positions.position_encoding(at, 1, like) for at in range(offset + size)], 1)
    part = positions.position_encoding(offset, size, like)
    assert torch.equal(part, every[:, offset:])


def test_rows_with_everything_masked_stay_finite(make_model, causal_conf):
    model = make_model(encoder_conf=causal_conf)
    encoder_out, _ = model.encode(torch.randn(2, 200, 40), torch.tensor([200, 20]), 4, 0)
    assert encoder_out.isfinite().all()


@torch.no_grad()
def test_utterance_shorter_than_a_window_has_no_frames(make_model):
    encoder_out, lengths = make_model().encode(torch.randn(1, 3, 40), torch.tensor([3]))
    assert lengths.tolist() == [0]
    assert encoder_out.isfinite().all()


def test_relative_attention_equals_the_formula_of_the_paper(make_model):
    """The rearranged attention has the scores (q + u) k + (q + v) p."""
    model = make_model()
    attention = model.encoder.encoders[0].self_attn
    x, pos_emb = torch.randn(2, 9, 16), torch.randn(1, 9, 16)
    query = attention.linear_q(x).view(2, 9, 2, 8)
    key, value = attention.project_memory(x)
    position = attention.split_heads(attention.linear_pos(pos_emb))
    content = (query + attention.pos_bias_u).transpose(1, 2) @ key.transpose(2, 3)
    place = (query + attention.pos_bias_v).transpose(1, 2) @ position.transpose(2, 3)
    weights = ((content + place) / 8**0.5).softmax(dim=3)
    expected = attention.linear_out((weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, None, pos_emb)[0], expected, atol=1e-5, rtol=1e-4)


def test_a_model_with_normalisation_after_the_modules_trains(make_model):
    for encoder in ("transformer", "conformer"):
        model = make_model(
            encoder,
            encoder_conf={"normalize_before": False},
            decoder_conf={"normalize_before": False},
        )
        losses = model(
            torch.randn(2, 80, 40),
            torch.tensor([80, 60]),
            torch.tensor([[1, 2], [3, -1]]),
            torch.tensor([2, 1]),
        )
        assert losses["loss"].isfinite()


def test_drawn_chunks_are_short_or_full_and_left_context_is_drawn_only_if_dynamic():
    torch.manual_seed(0)
    drawn = [draw_chunk(100, dynamic_left=False) for _ in range(400)]
    full = [chunk for chunk, _ in drawn if chunk == 100]
    assert {left for _, left in drawn} == {-1}
    assert all(1 <= chunk <= 25 or chunk == 100 for chunk, _ in drawn)
    assert 120 < len(full) < 280
    assert {left for _, left in (draw_chunk(100, dynamic_left=True) for _ in range(400))} >= {
        -1,
        0,
        1,
        2,
        3,
    }


def test_chunks_vary_between_training_batches_but_not_in_evaluation(make_model, causal_conf):
    rates = {"dropout_rate": 0.0, "positional_dropout_rate": 0.0}
    model = make_model(encoder_conf={**causal_conf, **rates})
    feats, lengths = torch.randn(1, 150, 40), torch.tensor([150])
    outputs = [model.train().encoder(feats, lengths)[0] for _ in range(8)]
    assert any(not torch.allclose(outputs[0], output) for output in outputs)
    assert torch.equal(model.eval().encoder(feats, lengths)[0], model.encoder(feats, lengths)[0])


def test_gradient_checkpointing_gives_the_same_gradients(make_model):
    gradients = []
    for keep in (False, True):
        rates = {
            "dropout_rate": 0.0,
            "positional_dropout_rate": 0.0,
            "gradient_checkpointing": keep,
        }
        model = make_model(encoder_conf=rates, decoder_conf=rates).train()
        model(torch.ones(1, 80, 40), torch.tensor([80]), torch.tensor([[1, 2]]), torch.tensor([2]))[
            "loss"
        ].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_chunks_are_refused_for_a_model_trained_without_chunks(make_model, causal_conf):
    feats, lengths = torch.randn(1, 80, 40), torch.tensor([80])
    with pytest.raises(ValueError, match="full context only"):
        make_model().encode(feats, lengths, 8)
    with pytest.raises(ValueError, match="causal: true"):
        make_model(encoder_conf={"use_dynamic_chunk": True}).encode(
            feats, lengths, 8, simulate_streaming=True
        )
    with pytest.raises(ValueError, match="decoding_chunk_size > 0"):
        make_model(encoder_conf=causal_conf).encode(feats, lengths, simulate_streaming=True)
