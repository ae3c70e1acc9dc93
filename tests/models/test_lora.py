from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.config import parse_config
from wenet_uio.config.train import LoraConf
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.lora import LoraLinear, add_lora, is_lora, merge_lora
from wenet_uio.models.weights import load_parts, load_weights

SMALL = {"attention_heads": 2, "linear_units": 8, "num_blocks": 1}


def make_model(**keys: object) -> ASRModel:
    values = {
        "encoder_conf": {**SMALL, "output_size": 8},
        "decoder": "transformer",
        "decoder_conf": SMALL,
        "tokenizer_conf": {"special_tokens": {"<sos>": 4, "<eos>": 4}},
        "input_dim": 8,
        "output_dim": 5,
        **keys,
    }
    return build_model(parse_config(values, "test")).eval()


def test_an_untrained_layer_equals_its_base_and_a_trained_one_adds_a_low_rank_product() -> None:
    base = torch.nn.Linear(6, 5)
    layer = LoraLinear(base, LoraConf(lora_rank=2, lora_alpha=4))
    x = torch.randn(3, 6)
    assert torch.equal(layer(x), base(x))
    torch.nn.init.normal_(layer.lora_B)
    difference = 2.0 * x @ layer.lora_A.T @ layer.lora_B.T
    torch.testing.assert_close(layer(x) - base(x), difference)


def test_only_the_named_projections_are_replaced_in_every_attention() -> None:
    model = make_model()
    add_lora(model, LoraConf(lora_list=("linear_q", "linear_out")))
    layers = [name for name, module in model.named_modules() if isinstance(module, LoraLinear)]
    places = (
        "encoder.encoders.0.self_attn",
        "decoder.decoders.0.self_attn",
        "decoder.decoders.0.src_attn",
    )
    assert sorted(layers) == sorted(
        f"{place}.{layer}" for place in places for layer in ("linear_q", "linear_out")
    )


def test_a_model_with_lora_loads_a_checkpoint_without_lora_and_can_be_scripted(
    tmp_path: Path,
) -> None:
    base, tuned = make_model(), make_model(use_lora=True)
    torch.save(base.state_dict(), tmp_path / "base.pt")
    with pytest.raises(ValueError, match=r"lora_A is missing"):
        load_weights(tuned, tmp_path / "base.pt")
    load_weights(tuned, tmp_path / "base.pt", new_lora=True)
    feats, lengths = torch.randn(1, 40, 8), torch.tensor([40])
    torch.testing.assert_close(tuned.encoder(feats, lengths)[0], base.encoder(feats, lengths)[0])
    torch.jit.script(tuned.encoder)


def test_the_encoder_of_another_model_can_be_loaded_alone(tmp_path: Path) -> None:
    source, model = make_model(), make_model()
    before = copy.deepcopy(model.state_dict())
    encoder = {
        name: value for name, value in source.state_dict().items() if name.startswith("encoder.")
    }
    torch.save({**encoder, "other": torch.ones(1)}, tmp_path / "other.pt")
    assert load_parts(model, tmp_path / "other.pt", ["encoder"]) == len(encoder)
    for name, value in model.state_dict().items():
        assert torch.equal(
            value, source.state_dict()[name] if name.startswith("encoder.") else before[name]
        )
    wider = make_model(encoder_conf={**SMALL, "output_size": 16})
    with pytest.raises(ValueError, match=r"encoder of .*other.pt: not the weights of this model"):
        load_parts(wider, tmp_path / "other.pt", ["encoder"])


def test_is_lora_finds_the_low_rank_weights_by_name() -> None:
    names = make_model(use_lora=True).state_dict()
    assert sum(map(is_lora, names)) == 2 * 3 * 3


def test_merged_weights_are_those_of_a_model_without_lora_that_computes_the_same() -> None:
    conf = LoraConf(lora_list=("linear_k", "linear_out"), lora_rank=2, lora_alpha=6)
    tuned = make_model(use_lora=True, lora_conf=conf.model_dump())
    for name, weight in tuned.named_parameters():
        if name.endswith("lora_B"):
            torch.nn.init.normal_(weight, std=0.1)
    merged = make_model()
    merged.load_state_dict(merge_lora(tuned.state_dict(), conf))
    feats, lengths = torch.randn(1, 40, 8), torch.tensor([40])
    torch.testing.assert_close(
        merged.encoder(feats, lengths)[0], tuned.encoder(feats, lengths)[0], atol=1e-5, rtol=0
    )


def test_weights_without_lora_and_of_another_rank_are_not_merged() -> None:
    with pytest.raises(ValueError, match="no low-rank weights to merge"):
        merge_lora(make_model().state_dict(), LoraConf())
    with pytest.raises(
        ValueError, match=r"linear_q: the rank of its low-rank weights is 8, lora_rank is 4"
    ):
        merge_lora(make_model(use_lora=True).state_dict(), LoraConf(lora_rank=4))


def test_projections_without_bias_are_adapted_as_in_whisper() -> None:
    model = make_model(
        encoder="transformer",
        encoder_conf={**SMALL, "output_size": 8, "key_bias": False},
        use_lora=True,
    )
    layer = model.get_submodule("encoder.encoders.0.self_attn.linear_k")
    assert isinstance(layer, LoraLinear)
    assert layer.bias is None


def test_a_model_without_such_attention_refuses_low_rank_weights() -> None:
    config = parse_config(tiny_paraformer(use_lora=True), "a.yaml")
    with pytest.raises(ValueError, match=r"use_lora: Paraformer has no attention"):
        build_model(config)
