"""Read, check and write a train.yaml."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import create_model

from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import warn_once
from wenet_uio.base.uris import published, shown_values
from wenet_uio.config.base import ConfigError, parse
from wenet_uio.config.checks import (
    add_own_parts,
    check_ctc_losses,
    check_parts,
    refuse_derived,
    set_views,
)
from wenet_uio.config.choices import CHOICES, KNOWN_NAMES
from wenet_uio.config.config import Config
from wenet_uio.config.fine_tuning import fine_tuned, forget_units, refuse_units_file
from wenet_uio.config.named_code import named_object
from wenet_uio.config.named_files import locate_files
from wenet_uio.config.nemo import FROM_NEMO, WITH_OVERRIDES, has_nemo_sections, is_nemo_path
from wenet_uio.config.overrides import Override, apply_override, name_causes, parse_overrides
from wenet_uio.config.trust import Trust, model_code, refuse_code
from wenet_uio.config.wenet import add_last_id, from_wenet, refuse_other_parts, to_wenet
from wenet_uio.config.yaml_file import read_yaml

log = logging.getLogger(__name__)


def parse_config(values: dict[str, Any], where: str) -> Config:
    """Check a mapping that has the shape of a train.yaml; error messages begin with `where`.

    Raises:
        ConfigError: one message that names every unknown key, wrong type and impossible value.
    """
    if has_nemo_sections(values):
        convert_nemo = named_object(FROM_NEMO, f"{where}: keys of NeMo")
        notes: list[str] = []  # filled by the conversion
        values = convert_nemo(values, where, notes)
        for note in notes:
            warn_once(note)

    return _check_config(from_wenet(values, where), where)


def _check_config(values: dict[str, Any], where: str) -> Config:
    """Check a mapping with the keys of Config, and add the values that follow from others."""
    refuse_other_parts(values, where, KNOWN_NAMES)
    refuse_derived(values, where)
    values = add_own_parts(values, where)

    # The name of a part, such as `encoder: conformer`, selects the class of `encoder_conf`.
    class_by_key: dict[str, Any] = {}
    for part, sections in CHOICES.items():
        name = values.get(part, Config.model_fields[part].default)
        if name is None and part in ("predictor", "joint"):
            continue

        # The keys of an unknown part cannot be checked: the message is about its name alone.
        section_class = sections.get(name, Any) if isinstance(name, str) else Any
        class_by_key[f"{part}_conf"] = section_class
        values.setdefault(f"{part}_conf", {})

    config = parse(_config_class(tuple(class_by_key.items())), values, where)
    check_parts(config, where)
    check_ctc_losses(config, where)
    complete_parts = config.family.parts.complete
    if complete_parts is not None:
        config = complete_parts(config, where)

    return set_views(config, where)


@lru_cache(maxsize=64)
def _config_class(sections: tuple[tuple[str, Any], ...]) -> type[Config]:
    """Make the class of configs that have the sections of the chosen parts.

    A class takes 10 ms to make, and a config 0.1 ms, so classes are kept.

    Args:
        sections: (key, such as `encoder_conf`; class of the section) of each part.
    """
    fields: dict[str, Any] = {key: (section, ...) for key, section in sections}
    return create_model("Config", __base__=Config, **fields)


def load_config(
    path: str | Path,
    overrides: Iterable[str] = (),
    *,
    of_model: bool = False,
    trust_code: Trust = False,
    start: Config | None = None,
) -> Config:
    """Read a train.yaml and apply `overrides` of the form `encoder_conf.num_blocks=6`.

    Files that the yaml names are found beside it, also if the folder was moved; paths in `overrides`
    stay as they are.

    Args:
        of_model: the yaml belongs to a trained model, which may have been moved.
        trust_code: which code of other packages, that the yaml names as encoder or model, may run.
            The config of one's own training is read with True.
        start: config of the trained model that a training starts from. What the model is comes from
            it, how it is trained from the yaml.

    Raises:
        ConfigError: the file is not yaml, it names code that is not trusted, or `parse_config`
            finds problems.
    """
    values = read_yaml(path)
    log.debug("%s: config read", path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected `key: value` lines, found {type(values).__name__}")

    changes = parse_overrides(overrides)
    load = partial(
        _apply_changes, values, Path(path), of_model=of_model, trust_code=trust_code, start=start
    )
    try:
        config, notes = load(changes)
    except ConfigError as error:
        raise name_causes(error, str(path), changes, load) from error

    for note in notes:
        warn_once(note)

    return config


def _apply_changes(
    values: dict[str, Any],
    path: Path,
    changes: Sequence[Override],
    *,
    of_model: bool,
    trust_code: Trust,
    start: Config | None,
) -> tuple[Config, list[str]]:
    """Return the config of the yaml `values` with overrides, and notes for the log.

    Args:
        of_model, trust_code, start: those of `load_config`.
    """
    start_values = None if start is None else keys_of(start)

    def complete(content: dict[str, Any]) -> dict[str, Any]:
        """Convert the keys of WeNet in a yaml, find its files, and add what it takes from `start`."""
        ours = from_wenet(content, str(path))
        # WeNet writes model_dir: this is a model of WeNet, which may be trained further here.
        if of_model or ours.get("model_dir"):
            add_last_id(ours, str(path))

        locate_files(ours, path, of_model=of_model)
        return ours if start_values is None else fine_tuned(ours, start_values, str(path))

    notes: list[str] = []
    changes_nemo_key = any(is_nemo_path(change.path) for change in changes)
    if has_nemo_sections(values) or changes_nemo_key:
        with_overrides = named_object(WITH_OVERRIDES, f"{path}: keys of NeMo")
        values, notes = with_overrides(values, changes, complete, str(path), of_model=of_model)
    else:
        values = complete(deepcopy(values))
        for change in changes:
            apply_override(values, change)

    if changes:
        values = from_wenet(values, str(path))  # an override may name a key of WeNet
    if start_values is not None:
        refuse_units_file(values, start_values, str(path))
        forget_units(values, start_values)
    refuse_code(model_code(values), trust_code, f"{path}: encoder or model")

    return _check_config(values, str(path)), notes


def keys_of(config: Config) -> Mapping[str, Any]:
    """Return the content of a yaml with which `parse_config` makes an equal config."""
    return from_wenet(to_wenet(config), config.model)


OF_THE_MACHINE = ("data", "cv_data", "model_dir", "save_states", "init_infos")
"""Keys that a published config does not have."""


def save_config(config: Config, path: str | Path, *, publish: bool = False) -> None:
    """Write the config with all defaults, in the form that WeNet reads; `load_config` restores an
    equal config.

    URIs are shown without passwords and signatures, because the file is passed on with the model.
    Decoding does not need the data; the next start of the run reads the true URIs from the config
    of its command line.

    Args:
        publish: leave out the training data, and the folders of absolute paths.
    """
    if publish:
        config = config.model_copy(update=dict.fromkeys(OF_THE_MACHINE))

    content = to_wenet(config)
    values = shown_values(content, published) if publish else shown_values(content)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    with written_aside(path, "w") as file:
        file.write(text)
