"""Small models with random weights, and features for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from wenet_uio.config import parse_config
from wenet_uio.models import ASRModel, build_model

VOCAB = 12
STREAMING = {
    "causal": True,
    "cnn_module_kernel": 8,
    "cnn_module_norm": "layer_norm",
    "use_dynamic_chunk": True,
}
IN_CHUNKS = {"causal": True, "use_dynamic_chunk": True}
GATED = {"num_blocks": 1, "cgmlp_linear_units": 40, "cgmlp_conv_kernel": 5}
SQUEEZED = {
    "encoder_dim": 16,
    "num_blocks": 3,
    "reduce_idx": 1,
    "recover_idx": 2,
    "cnn_module_kernel": 5,
}
EFFICIENT = {
    "linear_units": 32,
    "stride_layer_idx": 0,
    "group_layer_idx": [0],
    "cnn_module_kernel": 7,
}
FIRERED = {
    "num_blocks": 1,
    **{"pos_enc_layer_type": "rel_pos_firered", "selfattention_layer_type": "firered_rel_selfattn"},
    **{
        "input_layer": "firered_conv2d4",
        "final_norm": False,
        "conv_inner_factor": 4,
        "linear_units": 32,
    },
}
ROTARY = {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn"}
WITHOUT_POSITIONS = {"pos_enc_layer_type": "no_pos", "selfattention_layer_type": "selfattn"}
CASES = {
    "transformer": ("transformer", "transformer", {"use_dynamic_chunk": True}),
    "conv1d2": ("transformer", "transformer", {"input_layer": "conv1d2"}),
    "conformer": ("conformer", "transformer", {"num_blocks": 1}),
    "u2pp": ("conformer", "bitransformer", STREAMING),
    "branchformer": ("branchformer", "transformer", {**GATED, "merge_method": "learned_ave"}),
    "e_branchformer": ("e_branchformer", "transformer", GATED),
    "squeezeformer": ("squeezeformer", "transformer", SQUEEZED),
    "efficient": ("efficientConformer", "transformer", EFFICIENT),
    "streaming_efficient": ("efficientConformer", "transformer", {**EFFICIENT, **IN_CHUNKS}),
    "firered": ("firered_conformer", "transformer", FIRERED),
    "rotary": ("conformer", "transformer", {**STREAMING, **ROTARY}),
    "conv2d6": ("conformer", "bitransformer", {**STREAMING, "input_layer": "conv2d6"}),
    "shared_heads": ("transformer", "transformer", {"use_dynamic_chunk": True, "n_kv_head": 1}),
    "no_positions": (
        "transformer",
        "transformer",
        {"use_dynamic_chunk": True, **WITHOUT_POSITIONS},
    ),
    "streaming_branchformer": ("branchformer", "transformer", {**GATED, **IN_CHUNKS}),
    "streaming_e_branchformer": ("e_branchformer", "transformer", {**GATED, **IN_CHUNKS}),
    "streaming_squeezeformer": (
        "squeezeformer",
        "transformer",
        {**SQUEEZED, **IN_CHUNKS, "do_rel_shift": False, "time_reduction_layer_type": "stream"},
    ),
}


def make_case(case: str) -> ASRModel:
    """An untrained model of one of CASES, always with the same weights.

    Models with the same kind of decoder have the same decoder and CTC layer, so that a test can
    export these once.
    """
    encoder, decoder, encoder_conf = CASES[case]
    torch.manual_seed(0)
    small = {"output_size": 16, "attention_heads": 2, "num_blocks": 2}
    if encoder in ("transformer", "conformer", "e_branchformer"):
        small["linear_units"] = 32
    values = {
        "encoder": encoder,
        "encoder_conf": {**small, **encoder_conf},
        "decoder": decoder,
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
        "model_conf": {"reverse_weight": 0.3 if decoder == "bitransformer" else 0.0},
        "tokenizer_conf": {"special_tokens": {"<sos>": VOCAB - 1, "<eos>": VOCAB - 1}},
        "input_dim": 40,
        "output_dim": VOCAB,
    }
    model = build_model(parse_config(values, "test")).eval()
    torch.manual_seed(0)
    for module in (*model.decoder.modules(), *model.ctc.modules()):
        if isinstance(module, nn.Linear | nn.Embedding):
            module.reset_parameters()
    return model


@pytest.fixture
def make_model() -> Callable[[str], ASRModel]:
    """make_model(case) -> untrained model of one of CASES."""
    return make_case


def make_examples() -> list[tuple[str, torch.Tensor]]:
    """Keys and features (1, T, 40) of five utterances of 60 to 88 frames."""
    generator = torch.Generator().manual_seed(1)
    return [
        (f"utterance{i}", torch.randn(1, 60 + 7 * i, 40, generator=generator)) for i in range(5)
    ]


@pytest.fixture
def examples() -> list[tuple[str, torch.Tensor]]:
    """See make_examples."""
    return make_examples()
