"""Models of each family with random weights, which have words for every sound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.addons.listen.conftest import TRANSDUCER, write_model
from tests.support.data.digits import WORDS
from tests.support.models.digit_whisper import digit_whisper, write_vocabulary
from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.config import load_config, save_config
from wenet_uio.models import build_model
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.run_config import read_config

UNITS = ("<blank>", "<unk>", *"abcdefgh", "▁", "<sos/eos>")
LAYERS = {"attention_heads": 2, "linear_units": 16, "num_blocks": 1}
"""Keys of an encoder or a decoder."""
MODES = {
    "ctc": ("hybrid", "ctc_prefix_beam_search"),
    "attention": ("hybrid", "attention"),
    "rescoring": ("hybrid", "attention_rescoring"),
    "transducer": ("transducer", "rnnt_greedy_search"),
    "paraformer": ("paraformer", "paraformer_greedy_search"),
    "sensevoice": ("sensevoice", "ctc_greedy_search"),
    "ctl": ("ctl", "ctc_prefix_beam_search"),
    "whisper": ("whisper", "attention"),
}
"""{name: model and mode}"""
SECTIONS: Mapping[str, dict[str, Any]] = {
    "ctl": {
        "model": "ctl_model",
        "encoder": "dual_transformer",
        "encoder_conf": {**LAYERS, "output_size": 16, "use_dynamic_chunk": True},
        "decoder": "transformer",
        "decoder_conf": LAYERS,
        "model_conf": {"ctc_weight": 0.3},
        "tokenizer_conf": {"symbol_table_path": "units.txt"},
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 8}},
    },
    "paraformer": tiny_paraformer(tokenizer_conf={"symbol_table_path": "units.txt"}),
    "sensevoice": {
        "model": "sensevoice_small",
        "encoder": "sanm_encoder_with_tp",
        "encoder_conf": {**LAYERS, "output_size": 16, "tp_blocks": 1},
        "decoder": None,
        "tokenizer_conf": {"symbol_table_path": "units.txt"},
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 8}},
    },
}


def write_babbler(folder: Path, kind: str) -> Path:
    """Write a model of MODES that has words for every sound."""
    if kind in ("hybrid", "transducer"):
        write_model(folder, TRANSDUCER if kind == "transducer" else ())
        return _prefer_words(folder)

    folder.mkdir(parents=True)
    if kind == "whisper":
        write_vocabulary(folder)
        config = digit_whisper(1)
        config["tokenizer_conf"]["bpe_path"] = str(folder / "tiny.tiktoken")
    else:
        config = dict(SECTIONS[kind])
        config.pop("output_dim", None)
        (folder / "units.txt").write_text(
            "".join(f"{unit} {place}\n" for place, unit in enumerate(UNITS))
        )
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    if kind == "whisper":  # its special tokens are those of the vocabulary
        save_config(read_config(folder / "train.yaml")[0], folder / "train.yaml")
    torch.manual_seed(3)
    model = build_model(load_config(folder / "train.yaml"))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5 if kind == "whisper" else 0.3)
    torch.save(model.state_dict(), folder / "final.pt")
    return _prefer_words(folder)


def _prefer_words(folder: Path) -> Path:
    """Let the decoders of a model go on for some words, and a transducer for few."""
    weights = torch.load(folder / "final.pt", weights_only=True)
    config = load_config(folder / "train.yaml")
    model, tokenizer = build_model(config), build_tokenizer(config)
    for name, bias in weights.items():
        if name.startswith("joint.ffn_out."):
            bias *= 0.5
        if name == "joint.ffn_out.bias":
            bias[model.blank] += 1.5
        if name.startswith("decoder.") and name.endswith("output_layer.bias"):
            if config.model == "whisper":
                words = [tokenizer.symbols[f"▁{word}"] for word in WORDS]
                bias.fill_(-1e3)
                bias[words] = 0.0
            bias[model.eos] -= 2.0
    torch.save(weights, folder / "final.pt")
    return folder
