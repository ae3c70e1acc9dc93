"""Saved configs of encoders have exactly the keys that WeNet's classes accept."""
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportArgumentType=false

from __future__ import annotations

import pytest

from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.config.yaml_file import read_yaml

COMMON = [
    "output_size",
    "attention_heads",
    "num_blocks",
    "static_chunk_size",
    "use_dynamic_chunk",
    "use_dynamic_left_chunk",
    "attention_dropout_rate",
    "pos_enc_layer_type",
    "causal",
]
BLOCKS = [
    "dropout_rate",
    "positional_dropout_rate",
    "input_layer",
    "selfattention_layer_type",
    "query_bias",
    "key_bias",
    "value_bias",
    "gradient_checkpointing",
    "use_sdpa",
    "norm_eps",
]
GATED = [
    "cgmlp_linear_units",
    "cgmlp_conv_kernel",
    "use_linear_after_conv",
    "gate_activation",
    "stochastic_depth_rate",
]
WENETS = {
    "branchformer": {
        *COMMON,
        *BLOCKS,
        *GATED,
        "use_attn",
        "use_cgmlp",
        "merge_method",
        "cgmlp_weight",
        "attn_branch_drop_rate",
    },
    "e_branchformer": {
        *COMMON,
        *BLOCKS,
        *GATED,
        "linear_units",
        "activation_type",
        "merge_conv_kernel",
        "use_ffn",
        "macaron_style",
        "conv_bias",
    },
    "squeezeformer": {
        *COMMON,
        "encoder_dim",
        "reduce_idx",
        "recover_idx",
        "feed_forward_expansion_factor",
        "dw_stride",
        "input_dropout_rate",
        "time_reduction_layer_type",
        "do_rel_shift",
        "feed_forward_dropout_rate",
        "cnn_module_kernel",
        "cnn_norm_type",
        "dropout",
        "adaptive_scale",
        "activation_type",
        "init_weights",
        "normalize_before",
    },
}


@pytest.mark.parametrize("encoder", WENETS)
def test_a_saved_encoder_has_the_keys_that_wenet_accepts(encoder, tmp_path):
    save_config(parse_config({"encoder": encoder}, "test"), tmp_path / "train.yaml")
    assert set(read_yaml(tmp_path / "train.yaml")["encoder_conf"]) == WENETS[encoder]


ROPE = {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn"}


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        (
            {"pos_enc_layer_type": "rope_pos"},
            "rope_pos .pos_enc_layer_type. and rope_abs_selfattn need one another",
        ),
        ({**ROPE, "attention_heads": 2, "output_size": 6}, "head_dim 3 is odd"),
        ({"n_kv_head": 3}, "attention_heads 4 is not divisible by n_kv_head 3"),
        (
            {"head_dim": 32},
            r"head_dim 32 \* attention_heads 4 is 128; rel_selfattn needs output_size 256",
        ),
        (
            {"mlp_type": "moe", "n_expert": 2, "n_expert_activated": 3},
            "n_expert_activated 3 is above n_expert 2",
        ),
        ({"att_context_size": [128]}, "att_context_size.1: required key is missing"),
        (
            {"att_context_size": [-2, 3]},
            "att_context_size.0: expected a number greater than or equal to -1, found -2",
        ),
        (
            {"att_context_size": [9, 9], "use_dynamic_chunk": True},
            "att_context_size and chunks exclude each other",
        ),
        (
            {"att_context_size": [9, 9], "static_chunk_size": 4},
            "att_context_size and chunks exclude each other",
        ),
        (
            {"att_context_size": [9, -1], "selfattention_layer_type": "shaw_rel_selfattn"},
            "att_context_size needs a selfattention_layer_type of .*, found shaw_rel_selfattn",
        ),
        (
            {"input_layer": "dwconv2d8", "subsampling_conv_channels": 0},
            "subsampling_conv_channels: expected",
        ),
        ({"input_layer": "conv2d3"}, "input_layer: expected 'conv2d'"),
    ],
)
def test_attention_and_experts_that_cannot_be_built_are_refused(conf, message):
    with pytest.raises(ConfigError, match=f"^a.yaml: encoder_conf.*{message}"):
        parse_config({"encoder_conf": conf}, "a.yaml")


def test_branchformers_have_no_shared_keys_of_another_width():
    conf = parse_config(
        {"encoder": "branchformer", "encoder_conf": {"n_kv_head": 2}}, "a.yaml"
    ).encoder_conf
    assert (conf.key_heads, conf.attention_heads) == (2, 4)


DROPOUTS = {"dropout_rate": 0.1, "positional_dropout_rate": 0.1, "attention_dropout_rate": 0.1}
CGMLP = {"cgmlp_linear_units": 2048, "cgmlp_conv_kernel": 63, "use_linear_after_conv": False}
FRAMES = {
    "encoder_dim": 256,
    "output_size": 256,
    "reduce_idx": 5,
    "recover_idx": 11,
    "adaptive_scale": True,
}
PUBLISHED = {
    "u2++ branchformer of aishell": (
        "branchformer",
        {
            **DROPOUTS,
            **CGMLP,
            "use_attn": True,
            "use_cgmlp": True,
            "merge_method": "concat",
            "cgmlp_weight": 0.5,
        }
        | {
            "attn_branch_drop_rate": 0.0,
            "stochastic_depth_rate": 0.0,
            "gate_activation": "identity",
            "causal": True,
        }
        | {
            "num_blocks": 24,
            "use_dynamic_chunk": True,
            "use_dynamic_left_chunk": False,
            "input_layer": "conv2d",
        },
    ),
    "e_branchformer of aishell, as first published": (
        "e_branchformer",
        {
            **DROPOUTS,
            "attention_heads": 8,
            "linear_units": 1024,
            "num_blocks": 17,
            "merge_conv_kernel": 31,
        }
        | {
            "activation_type": "swish",
            "pos_enc_layer_type": "rel_pos",
            "attention_layer_type": "rel_selfattn",
        },
    ),
    "squeezeformer of librispeech": (
        "squeezeformer",
        {
            **FRAMES,
            "pos_enc_layer_type": "rel_pos",
            "time_reduction_layer_type": "conv1d",
            "cnn_norm_type": "layer_norm",
        }
        | {
            "feed_forward_expansion_factor": 4,
            "input_dropout_rate": 0.1,
            "feed_forward_dropout_rate": 0.1,
        },
    ),
    "u2++ squeezeformer of librispeech": (
        "squeezeformer",
        {**FRAMES, "time_reduction_layer_type": "stream", "do_rel_shift": False, "causal": True}
        | {"use_dynamic_chunk": True, "cnn_module_kernel": 31, "normalize_before": False},
    ),
}


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_encoders_of_wenets_recipes_are_read_unchanged(recipe):
    encoder, conf = PUBLISHED[recipe]
    read = parse_config(
        {"encoder": encoder, "encoder_conf": conf}, "test"
    ).encoder_conf.model_dump()
    for key, value in conf.items():
        assert read[{"attention_layer_type": "selfattention_layer_type"}.get(key, key)] == value


def test_lists_for_each_block_survive_saving(tmp_path):
    conf = {"num_blocks": 2, "stochastic_depth_rate": [0, 0.2], "attention_layer_type": "selfattn"}
    config = parse_config({"encoder": "branchformer", "encoder_conf": conf}, "test")
    save_config(config, tmp_path / "train.yaml")
    saved = load_config(tmp_path / "train.yaml")
    assert saved.model_dump() == config.model_dump()
    assert saved.encoder_conf.of_blocks("stochastic_depth_rate") == (0.0, 0.2)
    assert saved.encoder_conf.of_blocks("cgmlp_weight") == (0.5, 0.5)
    assert saved.encoder_conf.selfattention_layer_type == "selfattn"
