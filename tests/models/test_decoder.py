"""Attention decoders: one token at a time equals all tokens at once, in every order of
hypotheses.
"""

from __future__ import annotations

import pytest
import torch

from wenet_uio.models.decoder import reversed_hypotheses
from wenet_uio.models.masks import length_mask


@torch.no_grad()
@pytest.mark.parametrize("decoder", ["transformer", "bitransformer"])
@pytest.mark.parametrize("normalize_before", [True, False])
def test_one_token_at_a_time_equals_all_tokens_at_once(make_model, decoder, normalize_before):
    model = make_model(decoder=decoder, decoder_conf={"normalize_before": normalize_before})
    batch, beam, length = 3, 4, 5
    memory, mask = torch.randn(batch, 9, 16), length_mask(torch.tensor([9, 5, 1]), 9).unsqueeze(1)
    tokens = torch.randint(0, 11, (batch, beam, length))

    state = model.decoder.start(memory, mask)
    first, state = model.decoder.forward_one_step(state, torch.full((batch, 1), model.sos))
    state = state.reorder(torch.zeros(batch, beam, dtype=torch.long))
    steps = [first.expand(-1, beam, -1)]
    for i in range(length):
        log_probs, state = model.decoder.forward_one_step(state, tokens[:, :, i])
        steps.append(log_probs)

    given = torch.nn.functional.pad(tokens.flatten(0, 1), (1, 0), value=model.sos)
    lengths = torch.full((batch * beam,), length + 1)
    repeated, repeated_mask = memory.repeat_interleave(beam, 0), mask.repeat_interleave(beam, 0)
    logits, _ = model.decoder(repeated, repeated_mask, given, lengths, given, 0.0)
    expected = logits.log_softmax(2).view(batch, beam, length + 1, -1)
    torch.testing.assert_close(torch.stack(steps, dim=2), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_reordered_hypotheses_continue_their_parents(make_model):
    model = make_model(decoder="transformer")
    memory, mask = torch.randn(2, 6, 16), torch.ones(2, 1, 6, dtype=torch.bool)
    _, start = model.decoder.forward_one_step(
        model.decoder.start(memory, mask), torch.full((2, 1), model.sos)
    )
    _, state = model.decoder.forward_one_step(
        start.reorder(torch.zeros(2, 3, dtype=torch.long)), torch.tensor([[1, 2, 3], [4, 5, 6]])
    )
    chosen, _ = model.decoder.forward_one_step(
        state.reorder(torch.tensor([[2, 0], [1, 1]])), torch.tensor([[7, 8], [9, 9]])
    )

    _, direct = model.decoder.forward_one_step(
        start.reorder(torch.zeros(2, 2, dtype=torch.long)), torch.tensor([[3, 1], [5, 5]])
    )
    expected, _ = model.decoder.forward_one_step(direct, torch.tensor([[7, 8], [9, 9]]))
    torch.testing.assert_close(chosen, expected)


@torch.no_grad()
def test_padding_of_tokens_and_memory_does_not_change_scores(make_model):
    model = make_model()
    hyps, lens = torch.tensor([[11, 3, 4, 11, 11], [11, 5, 6, 7, 8]]), torch.tensor([3, 5])
    encoder_out = torch.randn(1, 10, 16)
    left, right = model.forward_attention_decoder(hyps, lens, encoder_out, 0.3)
    alone_left, alone_right = model.forward_attention_decoder(
        hyps[:1, :3], lens[:1], encoder_out, 0.3
    )
    torch.testing.assert_close(left[:1, :3], alone_left, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(right[:1, :3], alone_right, atol=1e-5, rtol=1e-4)
    longer = torch.cat((encoder_out, torch.randn(1, 4, 16)), dim=1).expand(2, -1, -1)
    mask = length_mask(torch.tensor([10, 10]), 14).unsqueeze(1)
    masked, _ = model.decoder(longer, mask, hyps, lens, hyps, 0.0)
    torch.testing.assert_close(masked.log_softmax(2), left, atol=1e-5, rtol=1e-4)


def test_right_to_left_scores_are_zeros_if_that_decoder_does_not_run(make_model):
    hyps, lens, encoder_out = torch.tensor([[11, 3]]), torch.tensor([2]), torch.randn(1, 4, 16)
    assert make_model().forward_attention_decoder(hyps, lens, encoder_out, 0.0)[1].tolist() == [0.0]
    assert make_model(decoder="transformer").forward_attention_decoder(
        hyps, lens, encoder_out, 0.5
    )[1].tolist() == [0.0]


def test_reversed_hypotheses_keep_sos_in_front_and_pad_with_eos():
    hyps = torch.tensor([[9, 1, 2, 3], [9, 4, 0, 0], [9, 0, 0, 0]])
    backward = reversed_hypotheses(hyps, torch.tensor([4, 2, 1]), eos=8)
    assert backward.tolist() == [[9, 3, 2, 1], [9, 4, 8, 8], [9, 8, 8, 8]]


def test_tied_embedding_is_one_parameter(make_model):
    decoder = make_model(decoder="transformer", decoder_conf={"tie_word_embedding": True}).decoder
    assert decoder.output_layer.weight is decoder.embed[0].weight
