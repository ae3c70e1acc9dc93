import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from wenet_uio.config.encoder import AttentionConf, LimitedContextConf
from wenet_uio.models import dropout
from wenet_uio.models.attention import RelPositionMultiHeadedAttention
from wenet_uio.models.dropout import Dropout, attended, dropped


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_the_share_that_is_dropped_and_the_scale_of_the_rest_are_those_of_the_rate(rate, dtype):
    torch.manual_seed(0)
    out = dropped(torch.ones(1000, 1001, dtype=dtype), rate)
    kept = out != 0
    assert 1 - kept.float().mean() == pytest.approx(rate, abs=2e-3)
    assert out[kept].unique().item() == pytest.approx(1 / (1 - rate), rel=1e-2)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    kept = (dropped(torch.ones(1 << 20), 0.5) != 0).float() - 0.5
    for distance in range(1, 9):
        assert abs((kept[distance:] * kept[:-distance]).mean()) < 1e-3


def test_the_gradient_is_dropped_where_the_value_is():
    x = torch.ones(7, 5, requires_grad=True)
    out = dropped(x, 0.4)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_equal_seeds_give_equal_draws_and_each_call_others():
    x, draws = torch.ones(33, 3), []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append((dropped(x, 0.5), dropped(x, 0.5)))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(*draws[0])


@pytest.mark.parametrize("rate", [0.0, 1e-7, 1.0])
@pytest.mark.parametrize("shape", [(0,), (), (1,), (3, 5)])
def test_any_shape_and_rate_is_possible(shape, rate):
    out = dropped(torch.full(shape, 2.0), rate)
    assert torch.equal(out, torch.full(shape, 0.0 if rate == 1 else 2.0))


def test_a_view_that_is_not_contiguous_is_dropped_too():
    x = torch.ones(6, 8, 10).transpose(0, 2)
    assert set(dropped(x, 0.5).unique().tolist()) == {0.0, 2.0}


def test_evaluation_changes_nothing_and_draws_nothing():
    layer, x = Dropout(0.5).eval(), torch.ones(4)
    before = torch.get_rng_state()
    assert layer(x) is x
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("bias", [None, torch.randn(2, 1, 5, 7)])
def test_attention_without_draws_equals_that_of_torch(bias):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, frames, 4, requires_grad=True) for frames in (5, 7, 7))
    ours = attended(query, key, value, bias, 1e-7)  # the rate is rounded to 0
    theirs = scaled_dot_product_attention(query, key, value, attn_mask=bias)
    torch.testing.assert_close(ours, theirs)
    gradients = [
        torch.autograd.grad(out.square().sum(), (query, key, value)) for out in (ours, theirs)
    ]
    torch.testing.assert_close(*gradients)


def test_the_mean_of_attention_with_dropout_is_that_without():
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, frames, 4) for frames in (3, 6, 6))
    many = attended(*(x.expand(20000, -1, -1, -1) for x in (query, key, value)), None, 0.3)
    torch.testing.assert_close(
        many.mean(0, keepdim=True), attended(query, key, value, None, 0.0), atol=0.02, rtol=0
    )


@pytest.mark.parametrize(("queries", "context"), [(1, (-1, -1)), (7, (-1, -1)), (1, (3, 2))])
def test_an_accelerator_adds_positions_to_the_keys_and_its_bias_needs_no_gradient(
    queries, context, monkeypatch
):
    torch.manual_seed(0)
    conf = LimitedContextConf(attention_heads=3, output_size=12, att_context_size=context)
    layer = RelPositionMultiHeadedAttention(12, 0.0, conf)
    assert layer.limited == (context != (-1, -1))
    x, positions, biases = torch.randn(2, 7, 12), torch.randn(1, 7, 12), []
    bias = torch.zeros(2, 1, queries, 7).masked_fill(torch.rand(2, 1, queries, 7) < 0.3, -1e9)

    def recorded(*args, attn_mask, **options):
        biases.append(attn_mask)
        return scaled_dot_product_attention(*args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(dropout, "scaled_dot_product_attention", recorded)
    found = []
    for on_accelerator in (False, True):
        monkeypatch.setattr(layer, "needs_bias_without_gradient", lambda x, on=on_accelerator: on)
        out, _ = layer(x, bias, positions)
        found.append((out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))))
    # The CPU computes scores with a gradient itself
    assert [each.requires_grad for each in biases] == [False]
    for ours, other in zip(*found, strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-5)


def test_only_training_on_an_accelerator_needs_a_bias_without_gradient():
    layer = RelPositionMultiHeadedAttention(12, 0.0, AttentionConf(attention_heads=3))
    on_device = torch.empty(1, device="meta")
    assert layer.needs_bias_without_gradient(on_device)
    assert not layer.needs_bias_without_gradient(torch.empty(1))
    assert not layer.eval().needs_bias_without_gradient(on_device)
