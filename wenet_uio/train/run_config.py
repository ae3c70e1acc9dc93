"""The config of a training run, completed from its tokenizer and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wenet_uio.config import Config, load_config
from wenet_uio.config.model import CtcConf
from wenet_uio.config.text import TokenizerConf
from wenet_uio.text.symbols import BLANK
from wenet_uio.text.tokenizer import Tokenizer, build_tokenizer, sos_and_eos


def read_config(path: str | Path, overrides: Iterable[str] = ()) -> tuple[Config, Tokenizer]:
    """Read a train.yaml and build its tokenizer; set `input_dim`, `output_dim`, `vocab_size`, `dtype` and special ids.

    Args:
        overrides: `key=value` strings that change the yaml.

    Raises:
        ConfigError: the yaml is wrong.
        ValueError: `input_dim` differs from the width of the features, or the blank from that of the units file.
        OSError: a file cannot be read.
    """
    config = load_config(path, overrides)
    tokenizer = build_tokenizer(config)
    features = config.dataset_conf.feature_dim
    if config.feature_dim != features:
        raise ValueError(f"{path}: input_dim {config.input_dim}, but dataset_conf gives {features} features a frame")
    output_dim = config.vocabulary_size or tokenizer.vocab_size
    derived: dict[str, Any] = {
        "input_dim": config.encoder_input_dim,
        "output_dim": output_dim,
        "vocab_size": output_dim,
        "ctc_conf": CtcConf(ctc_blank_id=_blank(config, tokenizer.symbols)),
        "tokenizer_conf": _with_special_ids(config.tokenizer_conf, tokenizer.symbols, output_dim),
    }
    if config.use_amp and config.dtype == "fp32":
        derived["dtype"] = "bf16"
    return config.model_copy(update=derived), tokenizer


def _blank(config: Config, symbols: Mapping[str, int]) -> int:
    """The blank of CTC: `ctc_blank_id`, or without this key the unit <blank>, as in WeNet."""
    given = config.ctc_conf.ctc_blank_id
    unit = symbols.get(BLANK, given)
    if "ctc_blank_id" in config.ctc_conf.model_fields_set and given != unit:
        raise ValueError(
            f"ctc_conf.ctc_blank_id is {given}, but {BLANK} is {unit} in {config.tokenizer_conf.symbol_table_path}; "
            "remove the key, or write the units file again"
        )
    return unit


def _with_special_ids(conf: TokenizerConf, symbols: Mapping[str, int], size: int) -> TokenizerConf:
    """Add the ids of <sos> and <eos>: without them WeNet takes the last id, whatever the units file says."""
    ids = sos_and_eos(conf, symbols, size)
    return conf.model_copy(update={"special_tokens": {**(conf.special_tokens or {}), **ids}})


def check_text_is_trainable(data_list: str, config: Config) -> None:
    """Refuse a data list with text without audio if this config cannot train on text alone.

    Raises:
        ValueError: the attention decoder has no weight in the loss, or the engine does not support such batches.
    """
    if config.model_conf.attention_weight == 0:
        advice = {
            "transducer": "give it a weight in model_conf (attention_weight above 0)",
            "paraformer": "a paraformer cannot train on it",
        }
        raise ValueError(
            f"{data_list}: text without audio trains the attention decoder, whose weight in the loss is 0; "
            + advice.get(config.model, "give it a weight in model_conf (ctc_weight below 1)")
        )
    if config.train_engine != "torch_ddp":
        raise ValueError(f"{data_list}: text without audio needs train_engine torch_ddp")
