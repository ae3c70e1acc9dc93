"""WeNet's yaml files: keys that only they have, and a train.yaml that WeNet reads.

WeNet passes most sections to a function as keyword arguments, so it fails on a key that it does not
know. It reads the top level, dataset_conf, batch_conf and tokenizer_conf by name and ignores
further keys there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

from wenet_uio.base.messages import warn_once
from wenet_uio.config import without_effect
from wenet_uio.config.base import ConfigError
from wenet_uio.config.config import Config
from wenet_uio.config.family import FAMILIES, family_of

OWN = "wenet_uio"
"""Top-level key for the keys of sections that WeNet does not know; WeNet ignores it."""
_MODULES = (
    "layer_norm_type",
    "n_kv_head",
    "head_dim",
    "mlp_type",
    "mlp_bias",
    "n_expert",
    "n_expert_activated",
)
OWN_KEYS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("dataset_conf", "filter_conf"): (
        "min_duration",
        "max_duration",
        "min_tps",
        "max_tps",
        "min_tpt",
        "max_tpt",
        "min_tokens",
        "max_tokens",
        "token_equivalent_duration",
        "measure_total_length",
    ),
    ("dataset_conf", "fbank_conf"): (
        "low_freq",
        "high_freq",
        "preemphasis_coefficient",
        "remove_dc_offset",
        "snip_edges",
    ),
    ("dataset_conf", "mfcc_conf"): (
        "window_type",
        "preemphasis_coefficient",
        "remove_dc_offset",
        "snip_edges",
        "cepstral_lifter",
    ),
    ("dataset_conf", "log_mel_spectrogram_conf"): ("pad_in_training",),
    ("encoder_conf",): ("subsampling_conv_channels", "att_context_size"),
}
"""{section: keys that WeNet's function for this section does not take}."""
LATE_KEYS: dict[str, tuple[str, ...]] = {
    "encoder_conf": (
        *_MODULES,
        "conv_inner_factor",
        "positionwise_conv_kernel_size",
        "final_norm",
        "concat_after",
    ),
    "decoder_conf": (
        *_MODULES,
        "input_layer",
        "src_attention",
        "use_output_layer",
        "src_query_bias",
        "src_key_bias",
        "src_value_bias",
    ),
    "model_conf": (
        "apply_non_blank_embedding",
        "delay_penalty",
        "warmup_steps",
        "lm_only_scale",
        "am_only_scale",
    ),
}
"""{section: keys that not all versions of WeNet take, and that a train.yaml has only with values
other than the defaults}."""
OTHER_PARTS: dict[str, tuple[str, ...]] = {
    "model": (
        "k2_model",
        "bestrq_model",
        "w2vbert_model",
        "wav2vec_model",
    ),
}
"""{key: names of WeNet's parts that do not exist here}."""
OF_2021 = {
    "max_length": "filter_conf",
    "min_length": "filter_conf",
    "token_max_length": "filter_conf",
    "token_min_length": "filter_conf",
    "batch_type": "batch_conf",
    "batch_size": "batch_conf",
    "max_frames_in_batch": "batch_conf",
}
"""{key of dataset_conf in 2021: section that has the key today}."""
FEATURES_OF_2021 = {
    "mel_bins": "num_mel_bins",
    "frame_length": "frame_length",
    "frame_shift": "frame_shift",
}
"""{key of feature_extraction_conf in 2021: key of fbank_conf or mfcc_conf today}."""

log = logging.getLogger(__name__)


def refuse_other_parts(
    values: Mapping[str, Any], where: str, known: Mapping[str, Collection[str]]
) -> None:
    """Refuse a config that names parts of WeNet that do not exist here.

    Args:
        known: {key: names of the parts that exist here}.

    Raises:
        ConfigError: one line with these parts. Their keys are not checked, because they are unknown
            too.
    """
    descriptions: list[str] = []
    for key, names in OTHER_PARTS.items():
        name = values.get(key)
        if isinstance(name, str) and name in names:
            descriptions.append(f"{key}: {name} (known: {', '.join(known[key])})")

    if descriptions:
        raise ConfigError(
            f"{where}: WeNet's parts that do not exist here: {'; '.join(descriptions)}"
        )


def from_wenet(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Convert the content of a yaml, of any version of WeNet or of this project, to the keys of
    Config.

    The log has one line with the keys that change nothing here.

    Args:
        values: content of the yaml; it is not changed.
        where: beginning of messages, such as the path of the yaml.

    Raises:
        ConfigError: `wenet_uio` is no section.
    """
    values = deepcopy(values)
    our_keys = values.pop(OWN, {})
    if not isinstance(our_keys, dict):
        raise ConfigError(f"{where}: {OWN}: expected sections with keys, found {our_keys!r}")

    _merge_sections(values, our_keys)
    _renew_dataset(values)
    _move_cmvn(values)
    _move_split_with_space(values)
    model = values.get("model")
    if isinstance(model, str) and model in FAMILIES:
        _rename_labels(values, family_of(model).exchange.wenet_labels)

    dropped: list[str] = []
    for path in without_effect.KEYS:
        was_there = _remove_key(values, path)
        if was_there:
            dropped.append(".".join(path))

    if dropped:
        warn_once(f"{where}: keys of WeNet that change nothing here: {', '.join(dropped)}")

    return values


def to_wenet(config: Config) -> dict[str, Any]:
    """Return the content of a train.yaml that WeNet reads; `from_wenet` is the inverse.

    Keys that WeNet does not know are left out where they have their default. The others go to the
    section `wenet_uio`, so WeNet computes as if they had their defaults. At the top level a key is
    left out if it is null by default and null.
    """
    fields = type(config).model_fields
    values: dict[str, Any] = {}
    for key, value in config.model_dump(mode="json").items():
        if value is not None or fields[key].default is not None:
            values[key] = value

    # Older versions of WeNet fail on these keys, so only those with other values stay.
    for section, names in LATE_KEYS.items():
        changed = _pop_changed_keys(config, values, (section,), names)
        values[section].update(changed)

    our_keys = _pop_own_sections(config, values)
    if config.model in FAMILIES:
        values["model"] = config.family.name

    wenet_names = {ours: theirs for theirs, ours in config.family.exchange.wenet_labels.items()}
    _rename_labels(values, wenet_names)
    if our_keys:
        values[OWN] = our_keys
    return values


def add_last_id(values: dict[str, Any], where: str) -> None:
    """Add <sos> and <eos> to the yaml of a trained model of WeNet that has no special_tokens, in
    place.

    WeNet then takes the last id, whatever units.txt says. A train.yaml of this project always has
    the key.
    """
    size = values.get("output_dim") or values.get("vocab_size")
    tokenizer = values.setdefault("tokenizer_conf", {})
    if not isinstance(size, int) or not isinstance(tokenizer, dict):
        return

    if "special_tokens" not in tokenizer:
        last_id = size - 1
        tokenizer["special_tokens"] = {"<sos>": last_id, "<eos>": last_id}
        log.info(
            "%s: no special_tokens, so <sos> and <eos> are the last id %d, as in WeNet",
            where,
            last_id,
        )


def _pop_own_sections(config: Config, values: dict[str, Any]) -> dict[str, Any]:
    """Remove the keys that WeNet does not know (OWN_KEYS) from `values`, in place.

    Returns:
        sections with those of them that do not have their default.
    """
    our_keys: dict[str, Any] = {}
    for path, names in OWN_KEYS.items():
        changed = _pop_changed_keys(config, values, path, names)
        if not changed:
            continue

        section = our_keys
        for key in path:
            section = section.setdefault(key, {})
        section.update(changed)

    return our_keys


def _pop_changed_keys(
    config: Config, values: dict[str, Any], path: tuple[str, ...], names: tuple[str, ...]
) -> dict[str, Any]:
    """Remove the keys `names` from the section at `path` of a dumped config, in place.

    Args:
        config: from which `values` were dumped.

    Returns:
        {key: value} of those that do not have their default.
    """
    section: Any = values
    conf: Any = config
    for key in path:
        section = section[key]
        conf = getattr(conf, key)

    changed: dict[str, Any] = {}
    for name in names:
        if name in section:
            value = section.pop(name)
            if getattr(conf, name) != type(conf).model_fields[name].default:
                changed[name] = value

    return changed


def _merge_sections(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the keys of `more` to `values` in place, and those of its sections to the sections
    there.
    """
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge_sections(values[key], value)
        else:
            values[key] = value


def _renew_dataset(values: dict[str, Any]) -> None:
    """Convert dataset_conf and collate_conf of 2021 to the dataset_conf of today, in place.

    A dataset_conf of 2021 has keys of OF_2021, and none of the sections that replaced them.
    """
    dataset = values.get("dataset_conf")
    if not isinstance(dataset, dict):
        return

    has_old_keys = not OF_2021.keys().isdisjoint(dataset)
    has_new_sections = not dataset.keys().isdisjoint(OF_2021.values())
    if not has_old_keys or has_new_sections:
        return

    for key, section in OF_2021.items():
        if key in dataset:
            dataset.setdefault(section, {})[key] = dataset.pop(key)

    collate = values.pop("collate_conf", None)
    if isinstance(collate, dict):
        _move_collate(collate, dataset)


def _move_collate(collate: dict[str, Any], dataset: dict[str, Any]) -> None:
    """Copy what collate_conf of 2021 states to dataset_conf, in place.

    A key that dataset_conf has already keeps its value.
    """
    for key in ("spec_aug", "speed_perturb", "spec_sub", "spec_sub_conf"):
        if key in collate:
            dataset.setdefault(key, collate[key])

    masks = dict(_find_section(collate, "spec_aug_conf"))
    masks.pop("warp_for_time", None)  # not a key of dataset_conf
    dataset.setdefault("spec_aug_conf", masks)

    features = _find_section(collate, "feature_extraction_conf")
    feats_type = features.get("feature_type", "fbank")
    dataset.setdefault("feats_type", feats_type)

    feats_conf = {new: features[old] for old, new in FEATURES_OF_2021.items() if old in features}
    feats_conf["dither"] = _find_section(collate, "wav_distortion_conf").get("wav_dither", 0.0)
    dataset.setdefault(f"{feats_type}_conf", feats_conf)


def _find_section(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the section `key`; empty if it is missing or no section."""
    section = values.get(key)
    return section if isinstance(section, dict) else {}


def _move_cmvn(values: dict[str, Any]) -> None:
    """Move `cmvn_file` and `is_json_cmvn`, which WeNet wrote at the top until 2023, to cmvn_conf,
    in place.
    """
    at_the_top = {key: values.pop(key) for key in ("cmvn_file", "is_json_cmvn") if key in values}
    if at_the_top.get("cmvn_file") and values.get("cmvn_conf") is None:
        values["cmvn"] = "global_cmvn"
        values["cmvn_conf"] = at_the_top

    conf = values.get("cmvn_conf")
    # WeNet writes `is_json_cmvn: null` without CMVN.
    if isinstance(conf, dict) and conf.get("is_json_cmvn", True) is None:
        del conf["is_json_cmvn"]


def _move_split_with_space(values: dict[str, Any]) -> None:
    """Move `split_with_space`, which was in dataset_conf before there was tokenizer_conf, in
    place.
    """
    dataset = _find_section(values, "dataset_conf")
    if "split_with_space" in dataset and values.get("tokenizer_conf") is None:
        values["tokenizer_conf"] = {"split_with_space": dataset.pop("split_with_space")}


def _rename_labels(values: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename special tokens, in place, by {name: new name}: some families of WeNet have names of
    their own.
    """
    conf = _find_section(values, "tokenizer_conf")
    ids = conf.get("special_tokens")
    if names and isinstance(ids, dict):
        conf["special_tokens"] = {names.get(label, label): ids[label] for label in ids}


def _remove_key(values: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Remove the key at `path`, in place; tell whether it was there."""
    section: Any = values
    for key in path[:-1]:
        section = section.get(key)
        if not isinstance(section, dict):
            return False

    if path[-1] not in section:
        return False

    del section[path[-1]]
    return True
