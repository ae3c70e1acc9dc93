"""Squeezeformer: frame rates, the shift of positions, invalid configs."""

from __future__ import annotations

import pytest
import torch

from wenet_uio.config import ConfigError, parse_config
from wenet_uio.models.attention import ShiftedRelPositionMultiHeadedAttention

TINY = {
    "encoder_dim": 16,
    "num_blocks": 4,
    "reduce_idx": 1,
    "recover_idx": 3,
    "cnn_module_kernel": 5,
}
BATCH = (
    torch.randn(2, 80, 40),
    torch.tensor([80, 70]),
    torch.tensor([[1, 2, 3], [4, -1, -1]]),
    torch.tensor([3, 1]),
)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"reduce_idx": None, "recover_idx": None},
        {"adaptive_scale": False, "dw_stride": True, "normalize_before": True},
        {"encoder_dim": 24, "do_rel_shift": False, "cnn_norm_type": "layer_norm"},
    ],
)
def test_every_weight_that_is_not_frozen_learns(make_encoder_model, more):
    model = make_encoder_model("squeezeformer", {**TINY, **more}).train()
    losses = model(*BATCH)
    losses["loss"].backward()
    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.requires_grad and weight.grad is None
    ]
    assert idle == []


def test_blocks_between_reduction_and_recovery_see_half_the_frames(make_encoder_model):
    model = make_encoder_model(
        "squeezeformer", {**TINY, "num_blocks": 6, "reduce_idx": [1, 2], "recover_idx": [4, 5]}
    )
    seen = []
    for layer in model.encoder.encoders:
        layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].size(1)))
    encoder_out, _ = model.encode(torch.randn(1, 87, 40), torch.tensor([87]))
    assert seen == [21, 11, 6, 6, 11, 21]
    assert encoder_out.size(1) == 21


def test_shift_counts_positions_from_the_end(make_encoder_model):
    attention = make_encoder_model("squeezeformer", TINY).encoder.encoders[0].self_attn
    assert isinstance(attention, ShiftedRelPositionMultiHeadedAttention)
    size = 5
    shifted = attention.shift(torch.arange(25.0).view(1, 1, size, size))[0, 0].tolist()
    for i in range(size):
        assert shifted[i][: i + 1] == [i * size + size - 1 - (i - j) for j in range(i + 1)]


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"recover_idx": None}, "two rising lists of the same length"),
        ({"reduce_idx": 11}, "with every reduce_idx below every recover_idx"),
        (
            {"reduce_idx": [2, 5], "recover_idx": [11, 12]},
            r"recover_idx \(11, 12\) is not below num_blocks 12",
        ),
        ({"encoder_dim": 30}, "encoder_dim 30 is not divisible by attention_heads 4"),
        ({"cnn_module_kernel": 30}, "cnn_module_kernel 30 is even"),
        (
            {"time_reduction_layer_type": "conv2d"},
            "time_reduction_layer_type.*'conv1d' or 'stream'",
        ),
        (
            {"dropout_rate": 0.1},
            "encoder_conf.dropout_rate: unknown key; did you mean 'input_dropout_rate'",
        ),
        ({"use_dynamic_left_chunk": True}, "needs use_dynamic_chunk"),
    ],
)
def test_invalid_values_are_refused(conf, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"encoder": "squeezeformer", "encoder_conf": conf}, "test.yaml")
