"""NeMo's loader settings, `model.train_ds`, as keys of Config: `data`, `dataset_conf` and the
length of an epoch.

Every key of NeMo's data-set document is read, or the log says in one line why it is not needed, or
a ConfigError says in one line what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo.loader import data_of, without_null
from wenet_uio.config.nemo.tokenizer import tokenizer_keys
from wenet_uio.config.yaml_file import read_yaml
from wenet_uio.messages import warn_once

LOADERS = ("train_ds", "validation_ds", "test_ds")
OTHER_NAMES = {"training_ds": "train_ds"}


def from_nemo(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert `train_ds` and `trainer` of NeMo, at the top of a yaml or under `model`, to keys of
    Config.

    The log has a line for each key that is not needed.

    Args:
        values: content of the yaml; it is not changed.
        where: beginning of messages, such as the path of the yaml.

    Raises:
        ConfigError: a setting has no equal here; the message says what to write.
    """
    values, notes = _without_model(values, where), []
    trainer, loaders = (
        values.pop("trainer", None) or {},
        {name: values.pop(name, None) for name in LOADERS},
    )
    _add_trainer(values, trainer, where, notes)
    for name in LOADERS[1:]:
        if loaders[name]:
            notes.append(f"{where}: {name}: not read; give the data to train.py as --cv_data")

    if loaders["train_ds"]:
        _add_loader(values, _opened(loaders["train_ds"], where), where, notes)

    for note in notes:
        warn_once(note)

    return values


def renamed(key: str) -> str:
    """Return the dotted key of an override of NeMo without `+` and `model.`; other keys stay as
    they are.
    """
    bare = key.lstrip("+")
    name = bare.removeprefix("model.").partition(".")[0]
    return bare.removeprefix("model.") if name in (*LOADERS, *OTHER_NAMES, "tokenizer") else bare


def _without_model(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the yaml with the loaders of `model` at its top, under their first names."""
    model = values.get("model")
    if isinstance(model, dict):
        if others := sorted(set(model) - {*LOADERS, *OTHER_NAMES, "tokenizer"}):
            raise ConfigError(
                f"{where}: model: a model of NeMo ({', '.join(others)}) is not read; write `model: "
                "asr_model` with "
                "encoder_conf, and train_ds at the top"
            )
        values = {**{key: value for key, value in values.items() if key != "model"}, **model}

    if isinstance(values.get("tokenizer"), dict):
        values = {**values, **tokenizer_keys(values["tokenizer"], f"{where}: tokenizer")}

    return {OTHER_NAMES.get(key, key): value for key, value in values.items()}


def _opened(section: Any, where: str) -> dict[str, Any]:
    """Return the keys of a loader that are not null; `section` may be the path of a yaml with them."""
    if isinstance(section, str):
        where, section = section, read_yaml(section)
    if isinstance(section, list):
        section = {"input_cfg": section}

    if not isinstance(section, dict):
        raise ConfigError(
            f"{where}: train_ds: expected keys of NeMo's loader or the path of a yaml, found "
            f"{section!r}"
        )

    section = _without_model(section, where)
    return without_null(section.get("train_ds", section))


def _add_trainer(
    values: dict[str, Any], trainer: Mapping[str, Any], where: str, notes: list[str]
) -> None:
    """Add the lengths of an epoch and of the run, in place."""
    for key, value in trainer.items():
        if key == "limit_train_batches" and isinstance(value, int):
            values["epoch_steps"] = value
        elif key == "max_steps":
            values["max_steps"] = value
        else:
            notes.append(
                f"{where}: trainer.{key}: not needed here, because train.py has no trainer of "
                "Lightning"
            )


def _add_loader(
    values: dict[str, Any], section: dict[str, Any], where: str, notes: list[str]
) -> None:
    """Add `data` and the keys of `dataset_conf`, in place."""
    if values.get("data"):
        raise ConfigError(f"{where}: data and train_ds both name training data: give one of them")

    where = f"{where}: train_ds"
    if values.get("tokenizer") == "aggregate" and "lang_field" in section:
        section = dict(section)
        values["tokenizer_conf"] = {
            **(values.get("tokenizer_conf") or {}),
            "lang_field": section.pop("lang_field"),
        }

    data = data_of(section, where, notes)
    dataset = {**(values.get("dataset_conf") or {}), **_dataset_keys(section, where)}
    for name in ("filter_conf", "batch_conf"):
        if conf := data.pop(name, None):
            dataset[name] = {**(dataset.get(name) or {}), **conf}

    if data["sources"]:
        values["data"] = data

    values["dataset_conf"] = dataset


def _dataset_keys(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return keys at the top of `dataset_conf`."""
    keys = {"shuffle": section["shuffle"]} if "shuffle" in section else {}
    if "sample_rate" in section:
        keys["resample_conf"] = {"resample_rate": section["sample_rate"]}

    strategy = section.get("tarred_shard_strategy", "scatter")
    if strategy not in ("scatter", "replicate"):
        raise ConfigError(
            f"{where}.tarred_shard_strategy: {strategy!r} is unknown; known: scatter, replicate"
        )

    return keys if strategy == "scatter" else {**keys, "partition": False}
