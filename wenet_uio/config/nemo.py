"""NeMo's loader settings, `model.train_ds`, as keys of Config: `data`, `dataset_conf` and the length of an epoch.

Every key of NeMo's data-set document is read, or the log says in one line why it is not needed, or a ConfigError says
in one line what to write instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo_batches import BATCHES, FILTERS, batch_conf_of, filters_of, list_of, sizes_of_buckets
from wenet_uio.config.wenet import warn_once
from wenet_uio.config.yaml_file import read_yaml

LOADERS = ("train_ds", "validation_ds", "test_ds")
OTHER_NAMES = {"training_ds": "train_ds", "tarred_audio_filepath": "tarred_audio_filepaths"}
PER_BATCH = {"round_robin": "round_robin", "randomized_round_robin": "weighted", "zip": "zip"}
"""{sampler_fusion of NeMo: per_batch}."""
SOURCES = (
    "input_cfg",
    "cuts_path",
    "shar_path",
    "manifest_filepath",
    "tarred_audio_filepaths",
    "is_tarred",
    "text_field",
)
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
    "prompt_format": "the models here take no prompt; tags and languages stay with the sample",
    "token_equivalent_duration": "audio and text have bounds of their own: batch_duration and batch_tokens",
    "force_finite": "an epoch is one pass",
    "metadata_only": "batches are planned from the index, without audio",
    "max_open_streams": "the plan bounds the number of open tars",
    "tarred_random_access": "the index makes every tar accessible at random",
    "drop_last": "an epoch has every utterance once",
}
"""{key of NeMo without effect here: because …}."""
OTHERS = ("shuffle", "sample_rate", "tarred_shard_strategy", "multi_config", "sampler_fusion", "sampler_weights")
KNOWN = (*SOURCES, *FILTERS, *BATCHES, *NOT_NEEDED, *OTHERS)


def from_nemo(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert `train_ds` and `trainer` of NeMo, at the top of a yaml or under `model`, to keys of Config.

    The log has a line for each key that is not needed.

    Args:
        values: content of the yaml; it is not changed.
        where: beginning of messages, such as the path of the yaml.

    Raises:
        ConfigError: a setting has no equal here; the message says what to write.
    """
    values, notes = _without_model(values, where), []
    trainer, loaders = values.pop("trainer", None) or {}, {name: values.pop(name, None) for name in LOADERS}
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
    """The dotted key of an override of NeMo without `+` and `model.`; other keys stay as they are."""
    bare = key.lstrip("+")
    name = bare.removeprefix("model.").partition(".")[0]
    return bare.removeprefix("model.") if name in (*LOADERS, *OTHER_NAMES) else bare


def _without_model(values: dict[str, Any], where: str) -> dict[str, Any]:
    """The yaml with the loaders of `model` at its top, under their first names."""
    model = values.get("model")
    if isinstance(model, dict):
        if others := sorted(set(model) - {*LOADERS, *OTHER_NAMES}):
            raise ConfigError(
                f"{where}: model: a model of NeMo ({', '.join(others)}) is not read; write `model: asr_model` with "
                "encoder_conf, and train_ds at the top"
            )
        values = {**{key: value for key, value in values.items() if key != "model"}, **model}
    return {OTHER_NAMES.get(key, key): value for key, value in values.items()}


def _opened(section: Any, where: str) -> dict[str, Any]:
    """The keys of a loader that are not null; `section` may be the path of a yaml with them."""
    if isinstance(section, str):
        where, section = section, read_yaml(section)
    if isinstance(section, list):
        section = {"input_cfg": section}
    if not isinstance(section, dict):
        raise ConfigError(f"{where}: train_ds: expected keys of NeMo's loader or the path of a yaml, found {section!r}")
    section = _without_model(section, where)
    return _given(section.get("train_ds", section))


def _given(section: Mapping[str, Any]) -> dict[str, Any]:
    return {OTHER_NAMES.get(key, key): value for key, value in section.items() if value is not None}


def _add_trainer(values: dict[str, Any], trainer: Mapping[str, Any], where: str, notes: list[str]) -> None:
    """Add the lengths of an epoch and of the run, in place."""
    for key, value in trainer.items():
        if key == "limit_train_batches" and isinstance(value, int):
            values["epoch_steps"] = value
        elif key == "max_steps":
            values["max_steps"] = value
        else:
            notes.append(f"{where}: trainer.{key}: not needed here, because train.py has no trainer of Lightning")


def _add_loader(values: dict[str, Any], section: dict[str, Any], where: str, notes: list[str]) -> None:
    """Add `data` and the keys of `dataset_conf`, in place."""
    if values.get("data"):
        raise ConfigError(f"{where}: data and train_ds both name training data: give one of them")
    where = f"{where}: train_ds"
    data = _joined(section, where, notes) if section.get("multi_config") else _single(section, where, notes)
    dataset = dict(values.get("dataset_conf") or {})
    for name in ("filter_conf", "batch_conf"):
        if conf := data.pop(name, None):
            dataset[name] = {**(dataset.get(name) or {}), **conf}
    if "shuffle" in section:
        dataset["shuffle"] = section["shuffle"]
    if "sample_rate" in section:
        dataset["resample_conf"] = {"resample_rate": section["sample_rate"]}
    if "tarred_shard_strategy" in section:
        dataset["partition"] = _partition(section["tarred_shard_strategy"], where)
    if data["sources"]:
        values["data"] = data
    values["dataset_conf"] = dataset


def _partition(strategy: str, where: str) -> bool:
    if strategy not in ("scatter", "replicate"):
        raise ConfigError(f"{where}.tarred_shard_strategy: {strategy!r} is unknown; known: scatter, replicate")
    return strategy == "scatter"


def _single(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """`data` of one loader, with its `filter_conf` and `batch_conf`."""
    _check_keys(section, where, notes)
    sources = _sources(section, where)
    batch = batch_conf_of(section, where, notes, text_only=_is_text(sources))
    found = {"sources": sources, "filter_conf": filters_of(section, where), "batch_conf": batch}
    if any("batch_conf" in source for source in sources):
        found["per_batch"] = True
    return found


def _joined(section: dict[str, Any], where: str, notes: list[str]) -> dict[str, Any]:
    """`data` of several loaders: a group for each, with batches of its own; their filters together."""
    loaders = {key: value for key, value in section.items() if isinstance(value, dict)}
    if not loaders:
        raise ConfigError(f"{where}.multi_config: give the keys of each loader in a section, such as audio: and text:")
    common = {key: value for key, value in section.items() if key not in loaders and key not in OTHERS}
    _check_keys(common, where, notes)
    common = {key: value for key, value in common.items() if key not in NOT_NEEDED}
    fusion = section.get("sampler_fusion", "round_robin")
    if fusion not in PER_BATCH:
        raise ConfigError(f"{where}.sampler_fusion: {fusion!r} is unknown; known: {', '.join(PER_BATCH)}")
    weights = section.get("sampler_weights") or [1.0] * len(loaders)
    weights = list(weights.values()) if isinstance(weights, dict) else weights
    weights = list_of(weights, len(loaders), f"{where}.sampler_weights")
    groups, filters = [], {}
    for (name, own), weight in zip(loaders.items(), weights, strict=True):
        found = _single(_given({**common, **own}), f"{where}.{name}", notes)
        if found.get("per_batch"):
            raise ConfigError(f"{where}.{name}.bucketing_batch_size: write bucket_duration_bins and bucket_batch_size")
        if not found["sources"]:
            raise ConfigError(f"{where}.{name}: names no data; write input_cfg or manifest_filepath")
        group = {"type": "group", "input_cfg": found["sources"], "batch_conf": found["batch_conf"]}
        groups.append(group | ({"weight": weight} if PER_BATCH[fusion] == "weighted" else {}))
        for key, value in found["filter_conf"].items():
            if filters.setdefault(key, value) != value:
                raise ConfigError(
                    f"{where}.{name}: filters apply to the whole run: {key} is {filters[key]} in another loader and "
                    f"{value} here; give both the wider bound"
                )
    return {"sources": groups, "per_batch": PER_BATCH[fusion], "filter_conf": filters}


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


def _sources(section: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The sources that a loader names; ready-made buckets with weights or sizes are one source each."""
    text_field = {"text_field": section["text_field"]} if "text_field" in section else {}
    if "input_cfg" in section:
        listed = section["input_cfg"]
        inside = [{"type": "group", "input_cfg": listed}] if isinstance(listed, str) else listed
        if any(source.get("type") == "multimodal_conversation" for source in inside):
            raise ConfigError(
                f"{where}.input_cfg: conversations of text and audio are not read; write the text of their turns as a "
                "source of type txt, and their audio with its transcripts as a source of type nemo"
            )
        return [{**text_field, **source} for source in inside]
    for key, kind in (("cuts_path", "lhotse_cuts"), ("shar_path", "lhotse_shar")):
        if key in section:
            return [{"type": kind, key: section[key], **text_field}]
    files = {"manifest_filepath": section.get("manifest_filepath")}
    kind = "nemo"
    if section.get("is_tarred", "tarred_audio_filepaths" in section):
        files, kind = {**files, "tarred_audio_filepaths": section.get("tarred_audio_filepaths")}, "nemo_tarred"
    if files["manifest_filepath"] and (missing := [key for key, value in files.items() if not value]):
        raise ConfigError(f"{where}.is_tarred: needs {missing[0]}")
    if "bucketing_weights" in section or "bucketing_batch_size" in section:
        return [{"type": kind, **text_field, **bucket} for bucket in _buckets(files, section, where)]
    return [{"type": kind, **files, **text_field}] if files["manifest_filepath"] else []


def _buckets(files: Mapping[str, Any], section: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Keys of a source for each ready-made bucket: its files, how often it is read, and its batch size."""
    count = len(files["manifest_filepath"]) if isinstance(files["manifest_filepath"], list) else 0
    if not count or not all(isinstance(each, list) and len(each) == count for each in files.values()):
        raise ConfigError(
            f"{where}: bucketing_batch_size and bucketing_weights need buckets: write {' and '.join(files)} as lists "
            "of lists, one list for each bucket"
        )
    weights = list_of(section.get("bucketing_weights", [1] * count), count, f"{where}.bucketing_weights")
    sizes = sizes_of_buckets(section, count, where)
    return [
        {key: each[number] for key, each in files.items()}
        | ({"repeat": weights[number]} if weights[number] != 1 else {})
        | ({"batch_conf": {"batch_type": "static", "batch_size": sizes[number]}} if sizes else {})
        for number in range(count)
    ]


def _is_text(sources: list[dict[str, Any]]) -> bool:
    """Whether all sources, also those in groups, are text without audio."""
    kinds = [
        _is_text(source["input_cfg"])
        if isinstance(source.get("input_cfg"), list)
        else source.get("type") in ("txt", "txt_pair")
        for source in sources
    ]
    return bool(kinds) and all(kinds)
