"""Models and batches of the modes: those of the LibriSpeech recipe, or small ones with --toy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from train_step import BINS, FRAMES_PER_SECOND, UNITS, make_batches, make_engine

from gpu_modes.report import Report
from wenet_uio.config import Config, parse_config
from wenet_uio.dataset.types import Batch
from wenet_uio.train.engine import Engine
from wenet_uio.train.run_config import choose_dtype

CONFS = Path(__file__).parents[3] / "examples/librispeech/s0/conf"
STREAMING = "train_u2++_conformer"
RECIPE_UNITS = 5000
TOKENS_PER_SECOND = 3.5
SHORTEST, LONGEST = 2.0, 16.0
"""Seconds of the utterances of dynamic batches."""
OF_CORPUS = ("cmvn", "cmvn_conf", "tokenizer", "tokenizer_conf")
"""Keys that name files of a corpus."""
PARTS = ("encoder_conf", "decoder_conf", "predictor_conf", "joint_conf")
SMALL = {
    **{
        "output_size": 32,
        "attention_heads": 2,
        "linear_units": 32,
        "num_blocks": 1,
        "r_num_blocks": 1,
    },
    **{"embed_size": 32, "hidden_size": 32, "num_layers": 1, "join_dim": 32},
}
"""Sizes with --toy. Depthwise convolutions of 16 channels in bf16 never end on CPUs with
AVX512-BF16 (torch 2.11)."""
RATES = {
    "encoder_conf": ("dropout_rate", "positional_dropout_rate", "attention_dropout_rate"),
    "decoder_conf": (
        *("dropout_rate", "positional_dropout_rate"),
        *("self_attention_dropout_rate", "src_attention_dropout_rate"),
    ),
}


def units_of(report: Report) -> int:
    """Return the size of the vocabulary."""
    return report.sized(RECIPE_UNITS, UNITS)


def recipe(report: Report, name: str) -> dict[str, Any]:
    """Return the keys of a yaml of the recipe, without those that name files of its corpus."""
    keys = yaml.safe_load((CONFS / f"{name}.yaml").read_text(encoding="utf-8"))
    keys = {key: value for key, value in keys.items() if key not in OF_CORPUS}
    for part in set(PARTS) & keys.keys() if report.options.toy else ():
        keys[part].update({key: size for key, size in SMALL.items() if key in keys[part]})
    return keys


def without_chance(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a model without dropout and without chunks of random size, so that two
    runs compute the same.
    """
    keys = {
        **keys,
        **{part: {**keys[part], **dict.fromkeys(rates, 0.0)} for part, rates in RATES.items()},
    }
    keys["encoder_conf"] = {**keys["encoder_conf"], "use_dynamic_chunk": False}
    return keys


def config_of(report: Report, keys: Mapping[str, Any], **changes: Any) -> Config:
    """Return a config for batches of random features; `changes` replace keys.

    Arithmetic and attention of the process are then those of train.py with this config.
    """
    units = units_of(report)
    ends = {"special_tokens": {"<sos>": units - 1, "<eos>": units - 1}}
    sizes = {"input_dim": BINS, "output_dim": units, "vocab_size": units, "tokenizer_conf": ends}
    return choose_dtype(parse_config({**keys, **sizes, **changes}, "gpu.py"), report.device)


def dtype_of(arithmetic: str) -> str:
    """Return the value of the key `dtype` for fp32, tf32, bf16 or fp16."""
    return "fp32" if arithmetic == "tf32" else arithmetic


def use_tf32(arithmetic: str) -> None:
    """Compute what stays fp32 in TF32 on a GPU, except for the arithmetic `fp32`."""
    torch.set_float32_matmul_precision("highest" if arithmetic == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = arithmetic != "fp32"


def engine_of(config: Config, arithmetic: str, device: torch.device) -> Engine:
    """Return an engine with a freshly initialised model."""
    engine = make_engine(config, str(device))
    use_tf32(arithmetic)  # after the engine, which may choose for itself
    return engine


def batch_of(report: Report, utterances: int, seconds: float) -> Batch:
    """Return a batch of utterances of about `seconds`, in pinned memory if a GPU is measured."""
    (batch,) = make_batches(1, utterances, seconds, TOKENS_PER_SECOND)
    return batch.pin_memory() if report.on_gpu else batch


def dynamic_batches(report: Report, frames: int, count: int) -> list[Batch]:
    """Return batches of different lengths with about `frames` padded frames each, as a dynamic plan
    makes them.
    """
    batches = []
    for number in range(count):
        seconds = report.sized(SHORTEST + (LONGEST - SHORTEST) * (number * 0.618 % 1), 1.0)
        padded = 1.1 * FRAMES_PER_SECOND * seconds
        batches.append(batch_of(report, max(1, int(frames / padded)), seconds))

    return batches
