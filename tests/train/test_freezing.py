from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.train.tiny import CPU, small_config, tiny_batch, tiny_config
from wenet_uio.models import build_model
from wenet_uio.models.lora import is_lora
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.layers import freeze_idle


def frozen(ctc_weight: float, reverse_weight: float) -> set[str]:
    """Frozen modules of a small U2++ model."""
    small = {"attention_heads": 2, "linear_units": 8, "num_blocks": 1}
    config = tiny_config(
        encoder_conf={**small, "output_size": 8},
        decoder_conf={**small, "r_num_blocks": 1},
        model_conf={"ctc_weight": ctc_weight, "reverse_weight": reverse_weight},
        tokenizer_conf={"special_tokens": {"<sos>": 4, "<eos>": 4}},
        output_dim=5,
    )
    model = build_model(config)
    freeze_idle(model)
    parts = {
        "ctc": model.ctc,
        "left": model.decoder.left_decoder,
        "right": model.decoder.right_decoder,
    }
    return {
        name
        for name, part in parts.items()
        if not any(weight.requires_grad for weight in part.parameters())
    }


def test_weights_without_influence_on_the_loss_are_frozen() -> None:
    assert frozen(ctc_weight=0.3, reverse_weight=0.3) == set()
    assert frozen(ctc_weight=0.3, reverse_weight=0.0) == {"right"}
    assert frozen(ctc_weight=0.0, reverse_weight=0.3) == {"ctc"}
    assert frozen(ctc_weight=1.0, reverse_weight=0.3) == {"left", "right"}


def changed_by_a_step(**keys: Any) -> tuple[set[str], DdpEngine]:
    """Names of the weights and buffers that one step changes."""
    config = small_config(**keys)
    torch.manual_seed(1)
    engine = DdpEngine(build_model(config), config, CPU, seed=1)
    engine.connect()
    before = {name: value.clone() for name, value in engine.weights().items()}
    engine.step([tiny_batch([90, 50], 1)], 1, {})
    return {
        name for name, value in engine.weights().items() if not torch.equal(value, before[name])
    }, engine


def test_frozen_modules_stay_as_they_are() -> None:
    changed, _ = changed_by_a_step(freeze_modules=["encoder", "decoder.embed"])
    assert changed
    assert not [name for name in changed if name.startswith(("encoder.", "decoder.embed."))]


def test_statistics_of_a_frozen_batch_norm_stay_as_they_are() -> None:
    def statistics(**keys: Any) -> int:
        conf = {
            "output_size": 16,
            "attention_heads": 2,
            "linear_units": 16,
            "num_blocks": 1,
            "cnn_module_kernel": 3,
        }
        config = tiny_config(
            encoder_conf=conf, decoder="transformer", input_dim=8, output_dim=6, **keys
        )
        engine = DdpEngine(build_model(config), config, CPU, seed=1)
        engine.connect()
        engine.step([tiny_batch([90, 50], 1)], 1, {})
        return int(engine.weights()["encoder.encoders.0.conv_module.norm.num_batches_tracked"])

    special = {"tokenizer_conf": {"special_tokens": {"<sos>": 5, "<eos>": 5}}}
    assert statistics(**special) == 1
    assert statistics(**special, freeze_modules=["encoder"]) == 0


def test_an_unknown_module_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="no module 'encoder.embd'; did you mean 'encoder.embed'"):
        changed_by_a_step(freeze_modules=["encoder.embd"])
    with pytest.raises(ValueError, match="leaves no weight to train"):
        changed_by_a_step(freeze_modules=["encoder", "decoder", "ctc"])


def test_only_optimize_lora_trains_only_lora_weights() -> None:
    changed, engine = changed_by_a_step(use_lora=True, only_optimize_lora=True)
    assert changed
    assert all(map(is_lora, changed))
    assert {name.split(".")[-2] for name in changed} == {"linear_q", "linear_k", "linear_v"}
    assert engine.optimizer.param_groups[0]["params"]
