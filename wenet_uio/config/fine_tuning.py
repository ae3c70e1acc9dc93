"""The config of a fine-tuning: what the model is comes from the model, how it is trained from the
yaml of the recipe.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.family import FAMILIES, family_of
from wenet_uio.config.overrides import merged
from wenet_uio.config.text import TOKENIZERS

OF_MODEL = (
    *("model", "model_conf", "encoder", "encoder_conf", "decoder", "decoder_conf"),
    *("predictor", "predictor_conf", "joint", "joint_conf", "ctc", "ctc_conf"),
    *("cmvn", "cmvn_conf", "tokenizer", "tokenizer_conf", "mask_padding"),
    *("interctc_layer_idx", "interctc_weight", "interctc_conditioning"),
    *("input_dim", "output_dim", "vocab_size"),
)
"""Keys that say what a model is."""
FEATURES = (
    "feats_type",
    "fbank_conf",
    "mfcc_conf",
    "log_mel_spectrogram_conf",
    "resample_conf",
)
"""Keys of dataset_conf that say what a model hears."""
LIMITS = ("filter_conf", "language_conf")
"""Keys of dataset_conf that are those of the model if the recipe does not state them: the lengths
that it can hear, and the language that its prompt names."""
UNITS_FILES = ("symbol_table_path", "bpe_path", "model_path", "seg_dict_path", "languages")
"""Keys of tokenizer_conf that name the units."""
OF_UNITS = ("output_dim", "vocab_size", "ctc_conf")
"""Keys that follow from the units."""

log = logging.getLogger(__name__)


def fine_tuned(recipe: Mapping[str, Any], model: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the keys of Config of a fine-tuning.

    A recipe without `encoder` changes the keys of the model that it states, one by one. A recipe
    with `encoder` describes a model of its own, which is left out; the log says so.

    Args:
        recipe: content of the yaml, with the keys of Config.
        model: content of the train.yaml of the model, with the keys of Config.
        where: beginning of messages, such as the path of the yaml.
    """
    recipe = deepcopy(dict(recipe))
    if "encoder" in recipe:
        _leave_out_model(recipe, where)

    dataset_of_model = model.get("dataset_conf") or {}
    dataset_of_recipe = recipe.get("dataset_conf") or {}
    inherited = [*FEATURES, *(name for name in LIMITS if name not in dataset_of_recipe)]
    values = _pick_keys(model, OF_MODEL)
    values["dataset_conf"] = _pick_keys(dataset_of_model, inherited)
    values = deepcopy(values)

    # The defaults of the family for fine-tuning are between those of the model and the recipe.
    name = values.get("model")
    if isinstance(name, str) and name in FAMILIES:
        values = merged(values, dict(family_of(name).training.fine_tuning))
    return merged(values, recipe)


def _pick_keys(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _leave_out_model(recipe: dict[str, Any], where: str) -> None:
    """Remove the keys of the model from a recipe, in place, and say so."""
    left_out = [name for name in OF_MODEL if recipe.pop(name, None) is not None]
    dataset = recipe.get("dataset_conf") or {}
    left_out += [f"dataset_conf.{name}" for name in FEATURES if dataset.pop(name, None) is not None]
    log.info("%s: left out, because the model has its own: %s", where, ", ".join(left_out))


def _tokenizer_conf(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values.get("tokenizer_conf") or {}


def forget_units(values: dict[str, Any], model: Mapping[str, Any]) -> None:
    """Remove what follows from the units of the model, in place, if `values` name other units.

    An override may state such a key for its own units: a key with another value than the model's
    stays.
    """
    conf = _tokenizer_conf(values)
    conf_of_model = _tokenizer_conf(model)
    if values.get("tokenizer") != model.get("tokenizer"):
        forgotten = tuple(conf_of_model)
    elif _pick_keys(conf, UNITS_FILES) != _pick_keys(conf_of_model, UNITS_FILES):
        forgotten = ("special_tokens",)
    else:
        return

    _remove_equal(values, model, OF_UNITS)
    values["tokenizer_conf"] = dict(conf)
    _remove_equal(values["tokenizer_conf"], conf_of_model, forgotten)


def refuse_units_file(values: Mapping[str, Any], model: Mapping[str, Any], where: str) -> None:
    """Raise a ConfigError if a units file is named for a tokenizer that has its own units."""
    path = _tokenizer_conf(values).get("symbol_table_path")
    path_of_model = _tokenizer_conf(model).get("symbol_table_path")
    kind = TOKENIZERS.get(str(values.get("tokenizer")))
    if kind is not None and kind.own_units and path != path_of_model:
        raise ConfigError(
            f"{where}: tokenizer_conf.symbol_table_path {path}: tokenizer {values['tokenizer']} of "
            "the model has its own units, which no units file changes; leave it out (--symbol_table, "
            "--units)"
        )


def _remove_equal(values: dict[str, Any], model: Mapping[str, Any], names: Iterable[str]) -> None:
    """Remove the keys `names` that have the value of the model, in place."""
    for name in names:
        if values.get(name) == model.get(name):
            values.pop(name, None)
