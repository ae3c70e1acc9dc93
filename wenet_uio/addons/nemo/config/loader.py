"""The loader of NeMo, or several with `multi_config`, as `data` with `filter_conf` and
`batch_conf`; `validation_ds` as `cv_data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.addons.nemo.config.augment import KEYS as AUGMENTATIONS
from wenet_uio.addons.nemo.config.batches import (
    BATCHES,
    FILTERS,
    check_tokens,
    loader_batches,
    loader_filters,
)
from wenet_uio.addons.nemo.config.keys import INSTEAD, NOT_NEEDED, check_keys, refuse_missing
from wenet_uio.addons.nemo.config.sources import (
    SOURCES,
    SPEECH,
    loader_sources,
    mix_text_data,
    source_kinds,
    without_missing_paths,
)
from wenet_uio.config.base import ConfigError
from wenet_uio.config.source import WEIGHTED, without_weights

PER_BATCH = {"round_robin": "round_robin", "randomized_round_robin": "weighted", "zip": "zip"}
"""{sampler_fusion of NeMo: per_batch}."""
OTHERS = (
    "shuffle",
    "seed",
    "sample_rate",
    "tarred_shard_strategy",
    "multi_config",
    "sampler_fusion",
    "sampler_weights",
)
"""Keys of the whole run."""
KNOWN = (*SOURCES, *SPEECH, *FILTERS, *BATCHES, *AUGMENTATIONS, *OTHERS)


def training_data(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `data` that a loader names, with its `filter_conf` and, for one loader, its
    `batch_conf`.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line for each key that is converted or not needed.

    Raises:
        ConfigError: a setting has no equal here; the message says what to write.
    """
    if section.get("multi_config"):
        return _joined_loaders(section, where, notes)
    return _single_loader(section, where, notes)


def stated_keys(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a loader that have a value; a second name of a key becomes the first."""
    names = {"tarred_audio_filepath": "tarred_audio_filepaths"}
    return {names.get(key, key): value for key, value in section.items() if value is not None}


def shared_value(section: Mapping[str, Any], key: str, where: str) -> Any:
    """Return a value that all loaders of a section share; None if none states it.

    Raises:
        ConfigError: two loaders state two values.
    """
    loaders = [section]
    if section.get("multi_config"):
        loaders += _named_loaders(section).values()

    values = [loader[key] for loader in loaders if loader.get(key) is not None]
    if any(value != values[0] for value in values):
        raise ConfigError(
            f"{where}.{key}: applies to the whole run, and is {values[0]} in one loader and "
            f"{values[-1]} in another; give one value"
        )

    return values[0] if values else None


def _named_loaders(section: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the loaders of a section with `multi_config`: its sections whose names are no keys."""
    keys = {*KNOWN, *NOT_NEEDED, *INSTEAD}
    return {
        name: value
        for name, value in section.items()
        if isinstance(value, dict) and name not in keys
    }


def _single_loader(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `data` of one loader, with its `filter_conf` and `batch_conf`."""
    section = check_keys(section, KNOWN, where, notes)
    section = without_missing_paths(section, where, notes)
    refuse_missing(section, where, "model.train_ds")

    sources = loader_sources(section, where)
    kinds = source_kinds(sources)
    check_tokens(section, where, notes, kinds)
    batch_conf = loader_batches(section, where, notes, kinds)

    data = mix_text_data(sources, section, where, notes)
    data["filter_conf"] = loader_filters(section, where, kinds)
    data["batch_conf"] = batch_conf
    # Ready-made buckets have batches of their own, so that a batch is of one source.
    if any("batch_conf" in source for source in sources):
        data["per_batch"] = True

    return data


def _joined_loaders(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `data` of several loaders: a group for each, with batches and filters of its own."""
    loaders = _named_loaders(section)
    if not loaders:
        raise ConfigError(
            f"{where}.multi_config: give the keys of each loader in a section, such as audio: and "
            "text:"
        )

    inherited = {
        key: value for key, value in section.items() if key not in loaders and key not in OTHERS
    }
    inherited = check_keys(inherited, KNOWN, where, notes)
    for key in AUGMENTATIONS:
        if any(key in loader for loader in loaders.values()):
            raise ConfigError(
                f"{where}: {key} applies to the whole run; write it beside multi_config"
            )

    per_batch, weights = _fusion_and_weights(section, list(loaders), where)
    groups: list[dict[str, Any]] = []
    for name, loader in loaders.items():
        keys = _single_loader(stated_keys({**inherited, **loader}), f"{where}.{name}", notes)
        group = _loader_group(keys, f"{where}.{name}")
        if weights:
            group["weight"] = weights[name]
        groups.append(group)

    return {"sources": groups, "per_batch": per_batch}


def _fusion_and_weights(
    section: Mapping[str, Any], names: list[str], where: str
) -> tuple[str, dict[str, float]]:
    """Return `per_batch` of several loaders, and the weight of each if batches are drawn by weight."""
    fusion = section.get("sampler_fusion", "round_robin")
    if fusion not in PER_BATCH:
        raise ConfigError(
            f"{where}.sampler_fusion: {fusion!r} is unknown; known: {', '.join(PER_BATCH)}"
        )

    weights = section.get("sampler_weights") or [1.0] * len(names)
    if isinstance(weights, dict) and set(weights) == set(names):
        weights = [weights[name] for name in names]

    if not isinstance(weights, list) or len(weights) != len(names):
        raise ConfigError(
            f"{where}.sampler_weights: expected a number for each of {', '.join(names)}, found "
            f"{weights}"
        )

    per_batch = PER_BATCH[fusion]
    if per_batch != "weighted":
        return per_batch, {}
    return per_batch, dict(zip(names, weights, strict=True))


def _loader_group(keys: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the group of one loader of several."""
    if keys.get("per_batch"):
        raise ConfigError(
            f"{where}.bucketing_batch_size: write bucket_duration_bins and bucket_batch_size "
            "instead"
        )

    if "temperature" in keys:
        raise ConfigError(
            f"{where}.asr_tts_sampling_technique: temperature applies to a whole run; write random"
        )

    if not keys["sources"]:
        raise ConfigError(f"{where}: names no data; write input_cfg or manifest_filepath")

    return {
        "type": "group",
        "input_cfg": keys["sources"],
        "batch_conf": keys["batch_conf"],
        "filter_conf": keys["filter_conf"],
    }


def validation_data(
    section: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, Any] | None:
    """Return the sources of a loader for validation; None if it names no data.

    Validation reads every utterance once, in batches like those of training.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line for each key that is not needed.

    Raises:
        ConfigError: a key is unknown, or the data cannot be read.
    """
    datasets = section.get("datasets")
    common = {key: value for key, value in section.items() if key != "datasets"}
    parts = datasets.values() if isinstance(datasets, Mapping) else [{}]
    sources: list[dict[str, Any]] = []

    for part in parts:
        loader = check_keys({**common, **part}, KNOWN, where, notes)
        loader = without_missing_paths(loader, where, notes)
        sources += loader_sources(_without_batches(loader, where, notes), where)

    if not sources:
        return None
    return {"sources": [_unweighted(source) for source in sources]}


def _unweighted(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a source without its weight and those of its members and paths: with weights, some
    utterances would be read twice and others never.
    """
    kept = {key: value for key, value in source.items() if key != "weight"}
    for key in kept.keys() & {*WEIGHTED, "tarred_audio_filepath"}:
        kept[key] = without_weights(kept[key])
    if isinstance(kept.get("input_cfg"), list):
        kept["input_cfg"] = [_unweighted(member) for member in kept["input_cfg"]]
    return kept


def _without_batches(section: Mapping[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return a loader without filters and sizes of batches, and note them."""
    batches = [key for key in BATCHES if key in section]
    if batches:
        notes.append(
            f"{where}: {', '.join(batches)}: not read here: validation has batches like those of "
            "training, dataset_conf.batch_conf"
        )

    filters = [key for key in FILTERS if key in section]
    if filters:
        notes.append(
            f"{where}: {', '.join(filters)}: not read here: validation reads every utterance; give "
            "a shorter list as --cv_data"
        )

    if section.get("trim_silence"):
        notes.append(
            f"{where}.trim_silence: not read here: validation and recognition read whole utterances"
        )

    not_read = (*BATCHES, *FILTERS)
    loader = {key: value for key, value in section.items() if key not in not_read}
    refuse_missing(loader, where, "model.validation_ds")
    return loader
