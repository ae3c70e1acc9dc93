"""yaml -> typed config. The yaml has WeNet's shape, and WeNet's own files load."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, create_model, field_validator

from wenet_uio.config.base import ConfigError, Section, parse
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.config.encoder import (
    BranchformerEncoderConf,
    ChunkConf,
    ConformerEncoderConf,
    EBranchformerEncoderConf,
    TransformerEncoderConf,
)
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.config.model import DECODER_CONFS, CmvnConf, CtcConf, HybridConf, ModelConf
from wenet_uio.config.squeezeformer import SqueezeformerEncoderConf
from wenet_uio.config.text import TokenizerConf
from wenet_uio.config.train import OPTIM_CONFS, SCHEDULER_CONFS, TrainKeys
from wenet_uio.config.transducer import JOINT_CONFS, PREDICTOR_CONFS, JointConf, PredictorConf, TransducerConf
from wenet_uio.files import written_aside

__all__ = ["Config", "ConfigError", "DatasetConf", "Section", "load_config", "parse_config", "save_config"]

ENCODER_CONFS: dict[str, type[ChunkConf]] = {
    "transformer": TransformerEncoderConf,
    "conformer": ConformerEncoderConf,
    "branchformer": BranchformerEncoderConf,
    "e_branchformer": EBranchformerEncoderConf,
    "squeezeformer": SqueezeformerEncoderConf,
}
MODEL_CONFS: dict[str, type[HybridConf]] = {
    "asr_model": ModelConf,
    "asrmodel": ModelConf,
    "transducer": TransducerConf,
}
CHOICES = {
    "encoder": ENCODER_CONFS,
    "decoder": DECODER_CONFS,
    "predictor": PREDICTOR_CONFS,
    "joint": JOINT_CONFS,
    "model": MODEL_CONFS,
    "optim": OPTIM_CONFS,
    "scheduler": SCHEDULER_CONFS,
}
"""Roles whose `_conf` has the keys of what the yaml names."""


class Config(TrainKeys):
    """Everything one training run is made of.

    `encoder_conf` holds the keys of the encoder named beside it, and so do the other `_conf` of CHOICES.
    """

    encoder: str = "conformer"
    encoder_conf: Section = ENCODER_CONFS["conformer"]()
    decoder: str = "bitransformer"
    decoder_conf: Section = DECODER_CONFS["bitransformer"]()
    ctc: str = "ctc"
    ctc_conf: CtcConf = CtcConf()
    cmvn: str | None = None
    cmvn_conf: CmvnConf = CmvnConf()
    predictor: str | None = None
    """Of a transducer, as the next three: what sees the tokens so far; rnn where absent."""
    predictor_conf: PredictorConf | None = None
    joint: str | None = None
    """How encoder frames and tokens meet; transducer_joint where absent."""
    joint_conf: JointConf | None = None
    model: str = "asr_model"
    model_conf: Section = ModelConf()
    tokenizer: str = "char"
    tokenizer_conf: TokenizerConf = TokenizerConf()
    dataset: str = "asr"
    dataset_conf: DatasetConf = DatasetConf()
    data: str | MixtureConf | None = None
    """What is trained on: a data list, a yaml file of sources, or sources; --train_data goes before it."""
    text_weight: float = Field(1.0, ge=0)
    """Of the decoder's loss on text without audio. Not in model_conf, whose keys WeNet hands to its model."""
    input_dim: int | None = None
    """Width of the features; derived from dataset_conf where absent."""
    output_dim: int | None = None
    """Size of the vocabulary; derived from the tokenizer where absent."""
    vocab_size: int | None = None
    """WeNet's second name of output_dim."""

    @field_validator("encoder", "decoder", "predictor", "joint", "ctc", "cmvn", "model", "tokenizer", "dataset")
    @classmethod
    def _is_known(cls, name: str | None, info: Any) -> str | None:
        known = {
            "encoder": list(ENCODER_CONFS),
            "decoder": list(DECODER_CONFS),
            "predictor": list(PREDICTOR_CONFS),
            "joint": list(JOINT_CONFS),
            "ctc": ["ctc"],
            "cmvn": ["global_cmvn"],
            "model": list(MODEL_CONFS),
            "tokenizer": ["char", "bpe"],
            "dataset": ["asr"],
        }[info.field_name]
        if name is None or name in known:
            return name
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise ValueError(f"unknown; did you mean {nearest[0]!r}?" if nearest else f"unknown; known: {', '.join(known)}")


def parse_config(values: dict[str, Any], where: str) -> Config:
    """Validate a mapping shaped like a train.yaml; `where` opens the error message.

    Raises:
        ConfigError: naming every unknown key, wrong type and impossible value at once.
    """
    if values.get("model") == "transducer":
        values = {"predictor": "rnn", "joint": "transducer_joint", **values}
    else:
        stray = [key for key in ("predictor", "predictor_conf", "joint", "joint_conf") if values.get(key) is not None]
        if stray:
            raise ConfigError(f"{where}: {stray[0]}: only a transducer has one; for that, say `model: transducer`")
    chosen: dict[str, Any] = {}
    for role, sections in CHOICES.items():
        name = values.get(role, Config.model_fields[role].default)
        if isinstance(name, str) and name in sections:
            chosen[f"{role}_conf"] = (sections[name], ...)
            values = {f"{role}_conf": {}, **values}
    config: Config = parse(create_model("Config", __base__=Config, **chosen), values, where)
    if config.joint_conf is None or config.predictor_conf is None:
        return config
    # WeNet wants the widths of what meets in the yaml; here they follow from the rest.
    widths = {
        "enc_output_size": config.joint_conf.enc_output_size or config.encoder_conf.output_size,
        "pred_output_size": config.joint_conf.pred_output_size or config.predictor_conf.output_size,
    }
    return config.model_copy(update={"joint_conf": config.joint_conf.model_copy(update=widths)})


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a train.yaml and apply `overrides` of the form `encoder_conf.num_blocks=6`.

    Raises:
        ConfigError: for what is not yaml, and for every problem parse_config finds.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not yaml: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found {type(values).__name__}")
    for override in overrides:
        _apply(values, override)
    return parse_config(values, str(path))


def _apply(values: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"--override_config {override}: expected key.subkey=value")
    *parents, last = dotted.strip().split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--override_config {override}: {parent} is a value, not a section")
    values[last] = yaml.safe_load(text)


def save_config(config: Config, path: str | Path) -> None:
    """Write the config, defaults included, so that load_config gives it back."""
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    with written_aside(path, "w") as file:
        file.write(text)
