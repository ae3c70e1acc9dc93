"""A Whisper of one layer in the layouts of OpenAI and of Hugging Face; the package transformers is
not needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

DIMS = (
    *("n_mels", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_vocab", "n_text_ctx", "n_text_state", "n_text_head", "n_text_layer"),
)
"""Names of the sizes in a checkpoint of OpenAI."""
SIZES = dict(zip(DIMS, (80, 1500, 8, 2, 1, 51865, 448, 8, 2, 1), strict=True))


def converter() -> ModuleType:
    """The converter of the family; tests without that add-on are skipped."""
    return pytest.importorskip("wenet_uio.addons.families.whisper.convert")


def openai_weights() -> dict[str, torch.Tensor]:
    """A Whisper of one layer, all ones."""
    special = {
        "encoder.conv1.weight": (8, 80, 3),
        "encoder.conv2.weight": (8, 8, 3),
        "encoder.positional_embedding": (1500, 8),
        "decoder.positional_embedding": (448, 8),
        "decoder.token_embedding.weight": (51865, 8),
    }
    wide = {f"{part}.blocks.0.mlp.0": (32, 8) for part in ("encoder", "decoder")}
    wide |= {f"{part}.blocks.0.mlp.2": (8, 32) for part in ("encoder", "decoder")}
    weights = {name: torch.ones(shape) for name, shape in special.items()}
    for name in (each.replace("{}", "0") for each in converter().OPENAI):
        if name in weights or f"{name}.weight" in weights:
            continue
        norm = name.rpartition(".")[2].startswith(("ln", "attn_ln", "cross_attn_ln", "mlp_ln"))
        shape = wide.get(name, (8,) if norm else (8, 8))
        weights[f"{name}.weight"] = torch.ones(shape)
        if not name.endswith(".key"):
            weights[f"{name}.bias"] = torch.ones(shape[0])
    return {**weights, "encoder.conv1.bias": torch.ones(8), "encoder.conv2.bias": torch.ones(8)}


def random_weights() -> dict[str, torch.Tensor]:
    """The same Whisper with random weights."""
    torch.manual_seed(3)
    return {name: 0.2 * torch.randn(value.shape) for name, value in openai_weights().items()}


def write_openai(path: Path) -> Path:
    """Write a random Whisper as OpenAI does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"dims": SIZES, "model_state_dict": random_weights()}, path)
    return path


def write_hugging_face(folder: Path) -> Path:
    """Write the same Whisper as a folder of Hugging Face."""
    theirs_of = {ours: theirs for theirs, ours in converter().HUGGING_FACE.items()}
    modules = {theirs: theirs_of[ours] for theirs, ours in converter().OPENAI.items()}
    weights = {}
    for name, value in random_weights().items():
        pattern = name.replace("blocks.0.", "blocks.{}.")
        module, _, kind = pattern.rpartition(".")
        renamed = modules[pattern] if pattern in modules else f"{modules[module]}.{kind}"
        weights[f"model.{renamed.replace('{}', '0')}"] = value

    folder.mkdir(parents=True)
    torch.save(weights, folder / "pytorch_model.bin")
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 80}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 51865}
    sizes |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    sizes |= {"max_source_positions": 1500, "max_target_positions": 448}
    (folder / "config.json").write_text(json.dumps({"model_type": "whisper", **sizes}))
    return folder
