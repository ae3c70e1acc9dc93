"""Models of every kind train on features of spoken digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.data.digits import FEATURES, Tensors, batches_of, train_steps, write_digits
from wenet_uio.config import parse_config
from wenet_uio.models import build_model

ENCODER = {"output_size": 32, "attention_heads": 4, "linear_units": 64, "num_blocks": 2}
CASES: dict[str, dict[str, Any]] = {
    "efficientConformer": {
        "encoder": "efficientConformer",
        "encoder_conf": {
            "stride_layer_idx": 0,
            "group_layer_idx": [0],
            "causal": True,
            "use_dynamic_chunk": True,
        },
    },
    "ctl_model": {
        "model": "ctl_model",
        "model_conf": {"n_negatives": 10, "ctc_weight": 1.0},
        "encoder": "dual_conformer",
        "encoder_conf": {"causal": True, "use_dynamic_chunk": True},
    },
}
CASES["firered"] = {
    "model": "firered",
    "encoder": "firered_conformer",
    "encoder_conf": {
        **{
            "pos_enc_layer_type": "rel_pos_firered",
            "selfattention_layer_type": "firered_rel_selfattn",
        },
        **{
            "input_layer": "firered_conv2d4",
            "final_norm": False,
            "conv_inner_factor": 4,
            "cnn_module_kernel": 33,
        },
    },
    "decoder_conf": {
        "attention_heads": 4,
        "linear_units": 64,
        "num_blocks": 1,
        "tie_word_embedding": True,
    },
}


@pytest.fixture(scope="module")
def units_and_batches(
    corpora: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Tensors]]:
    data_list, units = write_digits(corpora, tmp_path_factory.mktemp("digits"), 188)
    conf = {
        "tokenizer_conf": {"symbol_table_path": str(units), "split_with_space": True},
        "dataset_conf": FEATURES,
    }
    return units, batches_of(parse_config(conf, "test"), data_list)


@pytest.mark.third
@pytest.mark.parametrize("kind", CASES)
def test_forty_steps_halve_the_first_loss(
    kind: str, units_and_batches: tuple[Path, list[Tensors]]
) -> None:
    units, batches = units_and_batches
    values = CASES[kind]
    torch.manual_seed(0)
    model = build_model(
        parse_config(
            {
                "decoder": "transformer",
                "decoder_conf": {"attention_heads": 4, "linear_units": 64, "num_blocks": 1},
                **values,
                "encoder_conf": {**ENCODER, **values["encoder_conf"]},
                "tokenizer_conf": {"symbol_table_path": str(units), "split_with_space": True},
                "input_dim": 40,
            },
            "test",
        )
    )
    losses = train_steps(model, batches, 40, 4e-3)
    assert max(losses[-5:]) < 0.5 * losses[0], losses
