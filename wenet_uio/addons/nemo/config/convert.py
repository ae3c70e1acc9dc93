"""A configuration of NeMo as keys of Config: `data`, `cv_data`, `dataset_conf`, tokenizer, optimizer
and the length of the run.

Every key of NeMo's data sections and trainer is read, or the log says in one line why it is not
needed or what is done instead, or a ConfigError says in one line what to write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from wenet_uio.addons.nemo.config.augment import KEYS as AUGMENTATIONS
from wenet_uio.addons.nemo.config.augment import augmentation_keys
from wenet_uio.addons.nemo.config.keys import refuse_missing
from wenet_uio.addons.nemo.config.layout import MODEL, laid_out, reference_targets
from wenet_uio.addons.nemo.config.loader import (
    OTHERS,
    shared_value,
    stated_keys,
    training_data,
    validation_data,
)
from wenet_uio.addons.nemo.config.model import OWN_PARTS, check_model, tokenizer_keys
from wenet_uio.addons.nemo.config.optim import optim_keys
from wenet_uio.addons.nemo.config.references import (
    names_referred_to,
    refuse_unresolved,
    resolve_references,
)
from wenet_uio.addons.nemo.config.trainer import trainer_keys
from wenet_uio.config.base import ConfigError
from wenet_uio.config.config import Config
from wenet_uio.config.nemo import LOADERS, OF_FILE, SHARED, VARIABLES
from wenet_uio.config.overrides import merged

OF_RUN = {
    "exp_manager": "the folder of a run is train.py --model_dir, and a run saves every epoch and "
    "resumes by itself",
    "hydra": "--override_config changes keys of the yaml",
    "init_strict": "--checkpoint and --enc_init of train.py name what is loaded",
}
"""{key at the top of NeMo's files: what is done instead}."""
RANDOM_SEEDS = ("trng", "randomized")
"""Values of NeMo's `seed` that differ in every run."""
OF_RUN_KEYS = ("shuffle", "seed", "sample_rate")
"""Keys that all loaders share."""


def from_nemo(
    values: dict[str, Any],
    where: str,
    notes: list[str],
    *,
    given: Collection[str] = (),
    of_model: bool = False,
) -> dict[str, Any]:
    """Convert the sections of NeMo in a yaml to keys of Config; other keys stay.

    Args:
        values: content of the yaml; it is not changed.
        where: beginning of messages, such as the path of the yaml.
        notes: gets a line for each key that is not needed.
        given: keys of Config that overrides give, so that a section of NeMo is not needed for them.
        of_model: the yaml belongs to a trained model, which may be a stranger's: references stay
            as they are, so that the yaml reads no variable of the environment.

    Raises:
        ConfigError: a setting has no equal here; the message says what to write.
    """
    layout = laid_out(values, where)
    referred = names_referred_to(layout)
    if not of_model:
        layout = resolve_references(layout, reference_targets)

    keys_of_file = _take_file_keys(layout, referred, where, notes)
    model = layout.pop(MODEL, {})
    loaders = {name: layout.pop(name, None) for name in LOADERS}
    _leave_out_given(layout, given, where, notes)
    if isinstance(layout.get("tokenizer"), dict):
        section = layout.pop("tokenizer")
        layout |= tokenizer_keys(section, f"{where}: tokenizer", notes)

    _add_loaders(layout, loaders, model.get("sample_rate"), where, notes)
    _add_run(layout, keys_of_file, where, notes)
    has_encoder = any(part in layout or part in given for part in OWN_PARTS)
    check_model(model, f"{where}: model", notes, has_encoder=has_encoder)
    refuse_unresolved(layout, where)

    return layout


def _add_loaders(
    values: dict[str, Any], loaders: Mapping[str, Any], rate: Any, where: str, notes: list[str]
) -> None:
    """Add the data and its settings, in place; `rate` is the sample rate of `model`."""
    if section := loaders["train_ds"]:
        if rate is not None and section.get("sample_rate") is None:
            section = {**section, "sample_rate": rate}
        _add_loader(values, section, where, notes)
    if section := loaders["validation_ds"]:
        _add_validation(values, section, where, notes)
    if loaders["test_ds"]:
        notes.append(f"{where}: test_ds: not read; give the data to recognize.py as --test_data")


def _leave_out_given(
    layout: dict[str, Any], given: Collection[str], where: str, notes: list[str]
) -> None:
    """Remove tokenizer and optimizer of NeMo, in place, if overrides name those of this project."""
    for key in SHARED:
        if key in given and isinstance(layout.get(key), dict):
            del layout[key]
            notes.append(
                f"{where}: {key}: the section of NeMo is not read: an override gives {key}"
            )


def is_nemo(layout: Mapping[str, Any]) -> bool:
    """Tell whether a layout has a section that only NeMo's files have."""
    return any(key in layout for key in (*LOADERS, MODEL, "trainer", "exp_manager"))


def _take_file_keys(
    layout: dict[str, Any], referred: set[str], where: str, notes: list[str]
) -> dict[str, Any]:
    """Remove the keys at the top of a file of NeMo, in place, and note those that are not read. Keys
    that are `referred` to are variables of the file.

    Raises:
        ConfigError: the file starts from weights of NeMo.
    """
    if not is_nemo(layout):
        return {}

    names = (*OF_FILE, *VARIABLES, *(referred - Config.model_fields.keys()))
    keys_of_file = {key: layout.pop(key) for key in names if key in layout}
    for key, value in keys_of_file.items():
        if key.startswith("init_from") and value is not None:
            raise ConfigError(
                f"{where}: {key}: weights of NeMo are not read; write {key}: null, and give weights "
                "of a model of this project to train.py as --checkpoint"
            )
        if key in OF_RUN and value is not None:
            notes.append(f"{where}: {key}: not read here: {OF_RUN[key]}")

    return keys_of_file


def _add_run(
    values: dict[str, Any], of_file: Mapping[str, Any], where: str, notes: list[str]
) -> None:
    """Add the length of epoch and run, the arithmetic, optimizer and schedule, in place."""
    trainer = of_file.get("trainer")
    if trainer:
        keys = trainer_keys(trainer, f"{where}: trainer")
        _add_keys(values, keys.values, f"{where}: trainer")
        notes += keys.notes

    if isinstance(values.get("optim"), dict):
        steps = values.get("max_steps") or None
        if steps is None and values.get("epoch_steps") and values.get("max_epoch"):
            steps = values["epoch_steps"] * values["max_epoch"]

        keys = optim_keys(values.pop("optim"), steps, f"{where}: optim", notes)
        _add_keys(values, keys, f"{where}: optim")


def _add_keys(values: dict[str, Any], keys: Mapping[str, Any], where: str) -> None:
    """Add keys in place.

    Raises:
        ConfigError: the yaml states another value for one of them.
    """
    for key, value in keys.items():
        if key in values and values[key] != value:
            raise ConfigError(
                f"{where}: is {key}: {value} here, and the yaml has {key}: {values[key]}; remove one "
                "of them"
            )
        values[key] = value


def _add_loader(
    values: dict[str, Any], section: dict[str, Any], where: str, notes: list[str]
) -> None:
    """Add `data` and the keys of `dataset_conf`, in place."""
    section, where = stated_keys(section), f"{where}: train_ds"
    if values.get("tokenizer") == "aggregate" and "lang_field" in section:
        language_keys = {"lang_field": section.pop("lang_field")}
        values["tokenizer_conf"] = merged(values.get("tokenizer_conf"), language_keys)

    data = training_data(section, where, notes)
    stated = values.get("dataset_conf") or {}
    keys = _dataset_keys(section, where, notes)
    _join_filters(data, stated.get("filter_conf") or {})
    for name in ("filter_conf", "batch_conf"):
        if name in data:
            keys[name] = merged(stated.get(name), data.pop(name))

    values["dataset_conf"] = {**stated, **keys}
    if data["sources"]:
        _refuse_two(values.get("data"), where, "data and train_ds both name training data")
        values["data"] = data


def _refuse_two(given: Any, where: str, problem: str) -> None:
    """Raise a ConfigError if the yaml names data that a loader names too."""
    if given:
        raise ConfigError(f"{where}: {problem}: give one of them")


def _join_filters(data: dict[str, Any], of_run: Mapping[str, Any]) -> None:
    """Make the filters of all loaders those of the run, in place, if they agree; else each loader
    has its own, with those of the run that it does not state.
    """
    loaders = [source for source in data["sources"] if "filter_conf" in source]
    if not loaders:
        return

    filters = [loader.pop("filter_conf") for loader in loaders]
    if all(conf == filters[0] for conf in filters):
        data["filter_conf"] = filters[0]
        return

    for loader, conf in zip(loaders, filters, strict=True):
        loader["filter_conf"] = {**of_run, **conf}


def _dataset_keys(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return keys at the top of `dataset_conf`."""
    keys_of_run = {key: section[key] for key in (*OTHERS, *AUGMENTATIONS) if key in section}
    refuse_missing(keys_of_run, where, "model.train_ds")
    keys = augmentation_keys(section, where, notes)
    shuffle, seed, rate = (shared_value(section, name, where) for name in OF_RUN_KEYS)
    if shuffle is not None:
        keys["shuffle"] = shuffle
    if rate is not None:
        keys["resample_conf"] = {"resample_rate": rate}
    if seed in RANDOM_SEEDS:
        notes.append(
            f"{where}.seed: {seed} is not read here: the order follows train.py --seed; give "
            "another number for another order"
        )
    elif seed is not None:
        keys["seed"] = seed

    strategy = section.get("tarred_shard_strategy", "scatter")
    if strategy not in ("scatter", "replicate"):
        raise ConfigError(
            f"{where}.tarred_shard_strategy: {strategy!r} is unknown; known: scatter, replicate"
        )

    if strategy == "replicate":
        keys["partition"] = False
    return keys


def _add_validation(
    values: dict[str, Any], section: dict[str, Any], where: str, notes: list[str]
) -> None:
    """Add `cv_data`, in place, unless the yaml has it."""
    data = validation_data(stated_keys(section), f"{where}: validation_ds", notes)
    if data:
        _refuse_two(values.get("cv_data"), where, "cv_data and validation_ds both name its data")
        values["cv_data"] = data

    rate, conf = section.get("sample_rate"), (values.get("dataset_conf") or {})
    training_rate = (conf.get("resample_conf") or {}).get("resample_rate")
    if isinstance(rate, int) and training_rate not in (None, rate):
        raise ConfigError(
            f"{where}: validation_ds.sample_rate: {rate}, and {training_rate} in training; all "
            "audio is resampled to one rate: write it once"
        )
