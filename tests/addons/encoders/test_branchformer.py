"""Branchformer and E-Branchformer: options, stochastic depth, invalid configs."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.config import ConfigError, parse_config

TINY = {"cgmlp_linear_units": 24, "cgmlp_conv_kernel": 5}
E_TINY = {**TINY, "linear_units": 32, "merge_conv_kernel": 3}
CONFS = {"branchformer": TINY, "e_branchformer": E_TINY}
STREAMING = {"causal": True, "use_dynamic_chunk": True}
NO_DROPOUT = {"dropout_rate": 0.0, "positional_dropout_rate": 0.0}
BATCH = (
    torch.randn(2, 80, 40),
    torch.tensor([80, 70]),
    torch.tensor([[1, 2, 3], [4, -1, -1]]),
    torch.tensor([3, 1]),
)


@pytest.mark.parametrize(
    ("encoder", "more"),
    [
        ("branchformer", {}),
        ("branchformer", {"use_attn": False, "merge_method": "learned_ave"}),
        ("branchformer", {"use_cgmlp": False}),
        ("branchformer", {"merge_method": "learned_ave"}),
        ("branchformer", {"merge_method": "fixed_ave", "cgmlp_weight": [0.0, 1.0]}),
        (
            "branchformer",
            {"merge_method": "fixed_ave", "cgmlp_weight": 0.3, "gate_activation": "swish"},
        ),
        ("branchformer", {"use_linear_after_conv": True, "attention_layer_type": "selfattn"}),
        ("e_branchformer", {}),
        ("e_branchformer", {"use_ffn": False}),
        (
            "e_branchformer",
            {
                "macaron_style": False,
                "causal": True,
                "cgmlp_conv_kernel": 8,
                "merge_conv_kernel": 4,
            },
        ),
    ],
)
def test_every_weight_that_is_not_frozen_learns(make_encoder_model, encoder, more):
    model = make_encoder_model(encoder, {**CONFS[encoder], **more}).train()
    model(*BATCH)["loss"].backward()
    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and weight.grad is None
    ]
    assert idle == []


def test_fixed_average_with_a_weight_of_one_or_zero_has_one_branch(make_encoder_model):
    model = make_encoder_model(
        "branchformer", {**TINY, "merge_method": "fixed_ave", "cgmlp_weight": [0.0, 1.0]}
    )
    first, second = model.encoder.encoders
    assert (first.cgmlp, second.attn) == (None, None)
    assert (first.attn is None, second.cgmlp is None) == (False, False)


def test_learned_average_weighs_the_branches_as_in_the_paper(make_encoder_model):
    """Softmax over the pooled scores of the two branches (section 2.3 of the paper)."""
    layer = make_encoder_model(
        "branchformer", {**TINY, "merge_method": "learned_ave"}
    ).encoder.encoders[0]
    attended, gated = torch.randn(2, 7, 16), torch.randn(2, 7, 16)
    scores = []
    for x, pool, project in (
        (attended, layer.pooling_proj1, layer.weight_proj1),
        (gated, layer.pooling_proj2, layer.weight_proj2),
    ):
        weights = (pool(x) / 4).softmax(dim=1)
        scores.append(project((weights.transpose(1, 2) @ x).squeeze(1)))
    expected = torch.cat(scores, dim=1).softmax(dim=1)[:, :1]
    torch.testing.assert_close(
        layer._weight_of_attention(attended, gated, None).squeeze(2), expected
    )


def test_a_dropped_attention_branch_has_no_influence_but_zero_gradients(make_encoder_model):
    conf = {**TINY, **NO_DROPOUT, "merge_method": "learned_ave", "attn_branch_drop_rate": 1.0}
    model = make_encoder_model("branchformer", conf).train()
    model(*BATCH)["loss"].backward()
    gradient = model.encoder.encoders[0].attn.linear_v.weight.grad
    assert gradient is not None
    assert not gradient.any()


@pytest.mark.parametrize("encoder", CONFS)
def test_blocks_are_skipped_at_their_rate_and_only_in_training(make_encoder_model, encoder):
    conf = {**CONFS[encoder], **NO_DROPOUT, "stochastic_depth_rate": [0.0, 0.5]}
    model = make_encoder_model(encoder, conf)
    called = []
    model.encoder.encoders[1].register_forward_hook(lambda *_: called.append(1))
    model.train()
    torch.manual_seed(0)
    for _ in range(40):
        model.zero_grad(set_to_none=True)
        model(*BATCH)["loss"].backward()
        assert all(weight.grad is not None for weight in model.parameters() if weight.requires_grad)
    assert 8 < len(called) < 32
    called.clear()
    model.eval()
    for _ in range(5):
        model(*BATCH)
    assert len(called) == 5


@pytest.mark.parametrize("encoder", CONFS)
def test_outputs_of_blocks_that_are_not_skipped_are_scaled_up_in_training(
    make_encoder_model, encoder
):
    """With x + f(x) / (1 - p), the expectation over the draws is the output of evaluation."""
    conf = (
        {**CONFS[encoder], **NO_DROPOUT, "use_ffn": False}
        if encoder == "e_branchformer"
        else {**TINY, **NO_DROPOUT}
    )
    layer = make_encoder_model(encoder, {**conf, "stochastic_depth_rate": 0.5}).encoder.encoders[0]
    layer.norm_final = torch.nn.Identity()
    x, pos_emb = torch.randn(1, 6, 16), torch.randn(1, 6, 16)
    evaluated = layer(x, None, pos_emb, None)[0] - x
    torch.testing.assert_close(layer.train()(x, None, pos_emb, None)[0] - x, 2 * evaluated)


@pytest.mark.parametrize(
    ("encoder", "conf", "message"),
    [
        (
            "branchformer",
            {"linear_units": 64},
            "encoder_conf.linear_units: unknown key; did you mean 'cgmlp_linear_u",
        ),
        ("branchformer", {"merge_methd": "concat"}, "did you mean 'merge_method'"),
        ("branchformer", {"cgmlp_conv_kernel": 8}, "cgmlp_conv_kernel 8 is even"),
        (
            "branchformer",
            {"cgmlp_weight": [0.1, 0.2]},
            "cgmlp_weight has 2 numbers for num_blocks 12",
        ),
        (
            "branchformer",
            {"stochastic_depth_rate": 1.0},
            "stochastic_depth_rate 1 skips a block in every batch",
        ),
        ("branchformer", {"use_attn": False, "use_cgmlp": False}, "a block needs a branch"),
        ("e_branchformer", {"merge_conv_kernel": 4}, "merge_conv_kernel 4 is even"),
        ("e_branchformer", {"cgmlp_linear_units": 7}, "cgmlp_linear_units"),
        ("e_branchformer", {"cgmlp_kernel": 7}, "did you mean 'cgmlp_conv_kernel'"),
    ],
)
def test_impossible_values_are_refused(encoder, conf, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"encoder": encoder, "encoder_conf": conf}, "test.yaml")
