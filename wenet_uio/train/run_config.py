"""The config of a training run, completed from its tokenizer and features."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from wenet_uio.base.run_files import TRAIN_CONFIG
from wenet_uio.config import Config, load_config
from wenet_uio.config.model import CtcConf
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.models.arithmetic import dtype_for, has_bf16
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.special_ids import blank_id, output_size, special_ids
from wenet_uio.text.tokenizer import build_tokenizer, files_of

log = logging.getLogger(__name__)


def read_config(
    path: str | Path, overrides: Iterable[str] = (), start: Config | None = None
) -> tuple[Config, Tokenizer]:
    """Read a train.yaml and build its tokenizer.

    The result has `input_dim`, `output_dim`, `vocab_size`, `dtype` and special ids.

    Of a tokenizer without units file, the paths become those of the files that it reads.

    Args:
        overrides: `key=value` strings that change the yaml.
        start: config of the trained model that the training starts from, see `load_config`.

    Raises:
        ConfigError: the yaml is wrong.
        ValueError: `input_dim` differs from the width of the features, or an id from that of the
            tokenizer.
        OSError: a file cannot be read.
    """
    config = load_config(path, overrides, trust_code=True, start=start)
    if config.family.training.obstacle:
        raise ValueError(f"{path}: model: {config.family.training.obstacle}")

    tokenizer = build_tokenizer(config)
    features = config.dataset_conf.feature_dim
    if config.feature_dim != features:
        raise ValueError(
            f"{path}: input_dim {config.input_dim}, but dataset_conf gives {features} features a "
            "frame"
        )

    symbols = tokenizer.symbols
    blank = blank_id(config, symbols)
    output_dim = output_size(config, symbols, tokenizer.vocab_size)
    if blank >= tokenizer.vocab_size:
        log.info("the blank of CTC is %d, after the tokens of the tokenizer", blank)
    tokenizer_changes: dict[str, Any] = {
        **files_of(config),
        "special_tokens": special_ids(config.tokenizer_conf, symbols, output_dim),
    }
    derived: dict[str, Any] = {
        "input_dim": config.encoder_input_dim,
        "output_dim": output_dim,
        "vocab_size": output_dim,
        "ctc_conf": CtcConf(ctc_blank_id=blank),
        "tokenizer_conf": config.tokenizer_conf.model_copy(update=tokenizer_changes),
    }
    if config.use_amp and config.dtype == "fp32":
        derived["dtype"] = "bf16"

    return config.model_copy(update=derived), tokenizer


def choose_dtype(config: Config, device: torch.device, run: Path | None = None) -> Config:
    """Replace `dtype: auto` by the arithmetic for this device, and apply `cudnn_attention`.

    Args:
        run: folder of the run. On a CPU, a run that resumes keeps its type if the CPU has it.
    """
    torch.backends.cuda.enable_cudnn_sdp(config.cudnn_attention)
    dtype_of_run = _dtype_of_run(run, device) if config.dtype == "auto" and run else None
    dtype = dtype_of_run or dtype_for(config.dtype, device)
    if dtype == config.dtype:
        return config

    reason = ""
    if dtype_of_run:
        reason = ", as the run began"
    elif device.type == "cuda":
        reason = ", TF32 for what stays fp32"

    log.info("dtype auto: %s on this %s%s", dtype, device.type, reason)
    return config.model_copy(update={"dtype": dtype})


def _dtype_of_run(run: Path, device: torch.device) -> str | None:
    """Return the arithmetic that a run on a CPU began with.

    None if there is no such run, or this CPU lacks the arithmetic.
    """
    path = run / TRAIN_CONFIG
    if device.type != "cpu" or not path.exists():
        return None
    dtype = read_yaml(path).get("dtype")
    is_known_here = dtype == "fp32" or (dtype == "bf16" and has_bf16(device))
    return dtype if is_known_here else None


def check_text_is_trainable(data_list: str, config: Config) -> None:
    """Refuse a data list with text without audio if this config cannot train on text alone.

    Raises:
        ValueError: the attention decoder has no weight in the loss, or the engine does not support
            such batches.
    """
    if config.model_conf.decoder_weight == 0:
        raise ValueError(
            f"{data_list}: text without audio trains the attention decoder, whose weight in the "
            f"loss is 0; {config.family.training.text_advice}"
        )

    if config.train_engine != "torch_ddp":
        raise ValueError(f"{data_list}: text without audio needs train_engine torch_ddp")
