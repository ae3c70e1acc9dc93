"""One loader of NeMo, or several with `multi_config`, as `data` with `filter_conf` and
`batch_conf`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo.batches import BATCHES, FILTERS, batch_conf_of, filters_of
from wenet_uio.config.nemo.sources import SOURCES, is_text, sources_of
from wenet_uio.config.nemo.speech import SPEECH, with_text_data

PER_BATCH = {"round_robin": "round_robin", "randomized_round_robin": "weighted", "zip": "zip"}
"""{sampler_fusion of NeMo: per_batch}."""
SORTED = "the plan sorts all utterances by length before it cuts batches"
SHUFFLED = "the plan shuffles the whole corpus and needs no buffer"
PLANNED = "the plan gives every rank its own batches, every epoch another order, and every run of one seed the same"
NOT_NEEDED = {
    "use_lhotse": "there is one loader",
    "use_multimodal_sampling": "text without audio is measured in tokens, audio in seconds",
    "use_multimodal_dataloading": "text without audio is measured in tokens, audio in seconds",
    "measure_total_length": "the tokens of both texts of a pair count",
    "num_buckets": SORTED,
    "num_cuts_for_bins_estimate": SORTED,
    "bucket_buffer_size": SORTED,
    "concurrent_bucketing": SORTED,
    "shuffle_buffer_size": SHUFFLED,
    "shuffle_n": SHUFFLED,
    "shard_seed": PLANNED,
    "seed": "the seed is an option of train.py: --seed",
    "num_workers": "the number of workers is an option of train.py: --num_workers",
    "pin_memory": "the loader decides it",
    "defer_setup": "the first rank of a node indexes the data while the others wait",
    "lang_field": "every field of a line stays with its sample",
    "prompt_format": "model: whisper makes its prompt of the fields source_lang or lang, "
    "target_lang and task, and "
    "other models have none; write what a language model is to read into the texts",
    "force_finite": "an epoch is one pass",
    "metadata_only": "batches are planned from the index, without audio",
    "max_open_streams": "the plan bounds the number of open tars",
    "tarred_random_access": "the index makes every tar accessible at random",
    "drop_last": "an epoch has every utterance once",
}
"""{key of NeMo without effect here: because …}."""
OTHERS = (
    "shuffle",
    "token_equivalent_duration",
    "sample_rate",
    "tarred_shard_strategy",
    "multi_config",
    "sampler_fusion",
    "sampler_weights",
)
KNOWN = (*SOURCES, *SPEECH, *FILTERS, *BATCHES, *NOT_NEEDED, *OTHERS)


def data_of(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `data` that a loader names, with its `filter_conf` and, for one loader, its
    `batch_conf`.

    Args:
        section: keys of the loader; none is null.
        where: beginning of messages.
        notes: gets a line for each key that is converted or not needed.

    Raises:
        ConfigError: a setting has no equal here; the message says what to write.
    """
    return (
        _joined(section, where, notes)
        if section.get("multi_config")
        else _single(section, where, notes)
    )


def without_null(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a loader that have a value, under their first names."""
    names = {"tarred_audio_filepath": "tarred_audio_filepaths"}
    return {names.get(key, key): value for key, value in section.items() if value is not None}


def _single(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `data` of one loader, with its `filter_conf` and `batch_conf`."""
    _check_keys(section, where, notes)
    sources = sources_of(section, where)
    batch = batch_conf_of(section, where, notes, text_only=is_text(sources))
    keys = {
        **with_text_data(sources, section, where, notes),
        "filter_conf": filters_of(section, where),
        "batch_conf": batch,
    }
    if any("batch_conf" in source for source in sources):
        keys["per_batch"] = True

    return keys


def _joined(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """Return `data` of several loaders: a group for each, with batches of its own; their filters
    together.
    """
    loaders = {
        key: value
        for key, value in section.items()
        if isinstance(value, dict) and key not in OTHERS
    }
    if not loaders:
        raise ConfigError(
            f"{where}.multi_config: give the keys of each loader in a section, such as audio: and "
            "text:"
        )

    common = _common(section, loaders, where, notes)
    per_batch, weights = _fusion(section, list(loaders), where)
    groups: list[dict[str, Any]] = []
    filters: dict[str, Any] = {}

    for name, loader in loaders.items():
        keys = _single(without_null({**common, **loader}), f"{where}.{name}", notes)
        groups.append(
            {**_group(keys, f"{where}.{name}"), **({"weight": weights[name]} if weights else {})}
        )
        _add_filters(filters, keys["filter_conf"], f"{where}.{name}")

    return {"sources": groups, "per_batch": per_batch, "filter_conf": filters}


def _common(
    section: Mapping[str, Any], loaders: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, Any]:
    """Return the keys that every loader inherits."""
    common = {
        key: value for key, value in section.items() if key not in loaders and key not in OTHERS
    }
    _check_keys(common, where, notes)
    return {key: value for key, value in common.items() if key not in NOT_NEEDED}


def _fusion(
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
    return per_batch, dict(zip(names, weights, strict=True)) if per_batch == "weighted" else {}


def _group(keys: Mapping[str, Any], where: str) -> dict[str, Any]:
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

    return {"type": "group", "input_cfg": keys["sources"], "batch_conf": keys["batch_conf"]}


def _add_filters(filters: dict[str, Any], of_loader: Mapping[str, Any], where: str) -> None:
    """Add the filters of one loader, in place.

    Raises:
        ConfigError: another loader has another bound.
    """
    for key, value in of_loader.items():
        if filters.setdefault(key, value) != value:
            raise ConfigError(
                f"{where}: filters apply to the whole run: {key} is {filters[key]} in another "
                f"loader and {value} here; "
                "give both the wider bound"
            )


def _check_keys(section: Mapping[str, Any], where: str, notes: list[str]) -> None:
    """Note each key that is not needed.

    Raises:
        ConfigError: a key is unknown.
    """
    for key in section:
        if key in NOT_NEEDED:
            notes.append(f"{where}.{key}: not needed here, because {NOT_NEEDED[key]}")
        elif key not in KNOWN:
            near = difflib.get_close_matches(key, KNOWN, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(sorted(KNOWN))
            raise ConfigError(f"{where}.{key}: unknown key; {hint}")
