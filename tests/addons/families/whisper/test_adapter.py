"""A low-rank adapter of PEFT is merged with its base as PEFT merges it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.models.whisper_layouts import random_whisper
from wenet_uio.train.trained_model import convert_model

CONFIGS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "alpha of some modules": {
        "target_modules": ["q_proj", "fc1", "out_proj"],
        "alpha_pattern": {"fc1": 3, r"encoder\.layers\.1\.self_attn\.q_proj": 7},
        "rank_pattern": {"out_proj": 5},
    },
    "scaled by the root of the rank": {"target_modules": ["k_proj"], "use_rslora": True},
    "modules trained whole": {"target_modules": ["fc2"], "modules_to_save": ["conv1", "fc1"]},
}


def save_adapter(folder: Path, conf: dict[str, Any]) -> Path:
    """Write a base model, an adapter of random weights, and the model that PEFT makes of them.

    Returns:
        folder of the adapter; the other folders are beside it.
    """
    from peft import LoraConfig, get_peft_model

    model = random_whisper()
    model.save_pretrained(folder / "base")
    adapted: Any = get_peft_model(model, LoraConfig(r=4, lora_alpha=6, **conf))
    for name, weight in adapted.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(folder / "adapter")
    adapted.merge_and_unload().save_pretrained(folder / "merged")

    path = folder / "adapter/adapter_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | {"base_model_name_or_path": "../base"}), encoding="utf-8")
    return folder / "adapter"


@pytest.mark.parametrize("conf", CONFIGS)
def test_the_weights_are_those_that_peft_merges(conf: str, tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path, CONFIGS[conf])
    found = convert_model(adapter).weights
    expected = convert_model(tmp_path / "merged").weights
    base = convert_model(tmp_path / "base").weights
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=1e-6, rtol=1e-6)
    assert any(not torch.equal(found[name], base[name]) for name in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"base_model_name_or_path": "openai/whisper-base"},
            "an adapter of openai/whisper-base, w",
        ),
        ({"peft_type": "ADALORA"}, "an adapter of the kind ADALORA; only LoRA can be merged$"),
        ({"use_dora": True}, "an adapter of the kind DoRA; only LoRA can be merged$"),
    ],
)
def test_what_cannot_be_merged_is_one_line(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    adapter = save_adapter(tmp_path, CONFIGS["attention"])
    path = adapter / "adapter_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | changes), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        convert_model(adapter)
    assert str(caught.value).startswith(str(adapter))
    assert "\n" not in str(caught.value)


def test_an_adapter_of_another_model_is_refused_by_the_name_of_a_weight(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path, CONFIGS["attention"])
    other = random_whisper(51865, encoder_layers=1)
    other.save_pretrained(tmp_path / "base")
    with pytest.raises(ValueError, match=r"weights of model.encoder.layers.1.self_attn.* not fit"):
        convert_model(adapter)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", ["5GB", "200KB"])
def test_weights_of_16_bits_in_one_file_or_in_parts_are_read(
    dtype: torch.dtype, size: str, tmp_path: Path
) -> None:
    model = random_whisper().to(dtype)
    model.save_pretrained(tmp_path, max_shard_size=size)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (size == "200KB")
    found = convert_model(tmp_path).weights
    embedding = model.get_input_embeddings().weight
    assert torch.equal(found["decoder.embed.0.weight"], embedding.float())
