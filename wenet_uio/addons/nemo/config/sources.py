"""Data that one loader of NeMo names, as sources of a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wenet_uio.addons.nemo.config.batches import one_per_bucket, sizes_of_buckets
from wenet_uio.addons.nemo.config.references import MISSING
from wenet_uio.config.base import ConfigError
from wenet_uio.config.source import SOURCES as SOURCE_TYPES
from wenet_uio.config.source import source_type

SOURCES = (
    "input_cfg",
    "cuts_path",
    "shar_path",
    "manifest_filepath",
    "tarred_audio_filepaths",
    "is_tarred",
    "text_field",
    "token_equivalent_duration",
)
"""Keys that name data."""
PATHS = ("cuts_path", "shar_path", "manifest_filepath", "tarred_audio_filepaths")
"""Keys whose values are paths."""


def without_missing_paths(
    section: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, Any]:
    """Return a loader without the paths that are still to be given, which is no error: the data may
    be an option of train.py.
    """
    open_keys = [
        key for key in PATHS if key in section and MISSING in list(_paths_in(section[key]))
    ]
    if open_keys:
        name = where.rpartition(" ")[2]
        notes.append(
            f"{where}.{open_keys[0]}: {MISSING}: give the path, --override_config "
            f"++model.{name}.{open_keys[0]}=PATH, or the data as an option of train.py"
        )

    return {key: value for key, value in section.items() if key not in open_keys}


def _paths_in(value: Any) -> Iterator[Any]:
    """Yield the paths of a value of PATHS, in lists of any depth."""
    if isinstance(value, list):
        for part in value:
            yield from _paths_in(part)
    else:
        yield value


def sources_of(section: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the sources that a loader names: sections of the yaml of a mixture.

    `input_cfg` names them; otherwise the paths of the loader are the data, and `input_cfg` goes
    before them. Buckets that were made before training are one source each, if they have weights or
    sizes.

    Raises:
        ConfigError: the data cannot be read; the message says what to write.
    """
    if "input_cfg" in section:
        inherited = _keys_in(section, "text_field", "token_equivalent_duration")
        return [inherited | source for source in _listed(section["input_cfg"], where)]

    text_field = _keys_in(section, "text_field")
    for key, source_name in (("cuts_path", "lhotse_cuts"), ("shar_path", "lhotse_shar")):
        if key in section:
            return [{"type": source_name, key: section[key], **text_field}]

    return [text_field | source for source in _of_manifests(section, where)]


def _keys_in(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return those of some keys that a section states, with their values."""
    return {key: section[key] for key in keys if key in section}


def _listed(input_cfg: Any, where: str) -> list[dict[str, Any]]:
    """Return the sources of `input_cfg`: a list, or the path of a yaml with one."""
    if isinstance(input_cfg, str):
        return [{"type": "group", "input_cfg": input_cfg}]

    if not isinstance(input_cfg, list) or not all(isinstance(source, dict) for source in input_cfg):
        raise ConfigError(
            f"{where}.input_cfg: expected a list of sources or the path of a yaml, found "
            f"{input_cfg!r}"
        )

    return input_cfg


def _of_manifests(section: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the sources of `manifest_filepath`, with or without tars; none without a manifest."""
    is_tarred = section.get("is_tarred", "tarred_audio_filepaths" in section)
    source_name = "nemo_tarred" if is_tarred else "nemo"
    keys = ("manifest_filepath", "tarred_audio_filepaths") if is_tarred else ("manifest_filepath",)
    files = {key: section.get(key) for key in keys}

    if "bucketing_weights" in section or "bucketing_batch_size" in section:
        return [{"type": source_name, **bucket} for bucket in _buckets(files, section, where)]
    if not files["manifest_filepath"]:
        return []
    if not all(files.values()):
        raise ConfigError(f"{where}.is_tarred: needs tarred_audio_filepaths")

    return [{"type": source_name, **files}]


def _buckets(
    files: Mapping[str, Any], section: Mapping[str, Any], where: str
) -> list[dict[str, Any]]:
    """Return keys of a source for each ready-made bucket: its files, how often it is read, and its
    batch size.
    """
    count = _number_of_buckets(files, where)
    weights = one_per_bucket(
        section.get("bucketing_weights", [1] * count), count, f"{where}.bucketing_weights"
    )
    sizes = sizes_of_buckets(section, count, where)

    buckets = []
    for number in range(count):
        bucket = {key: paths[number] for key, paths in files.items()}
        if weights[number] != 1:
            bucket["repeat"] = weights[number]
        if sizes:
            bucket["batch_conf"] = {"batch_type": "static", "batch_size": sizes[number]}
        buckets.append(bucket)

    return buckets


def _number_of_buckets(files: Mapping[str, Any], where: str) -> int:
    """Return the length that the lists of all `files` have in common.

    Raises:
        ConfigError: a value of `files` is not a list or is empty, or their lengths differ.
    """
    lengths = {len(paths) if isinstance(paths, list) else 0 for paths in files.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ConfigError(
            f"{where}: bucketing_batch_size and bucketing_weights need buckets: write "
            f"{' and '.join(files)} as lists of lists, one list for each bucket"
        )

    return lengths.pop()


def kinds_of(sources: list[dict[str, Any]]) -> set[str]:
    """Return what sources and the members of groups hold: text, audio, or unknown in files of
    sources. Conversations, which have no audio of their own, are text.
    """
    kinds: set[str] = set()
    for source in sources:
        members, name = source.get("input_cfg"), source.get("type")
        if isinstance(members, list):
            kinds |= kinds_of(members)
        elif name in SOURCE_TYPES and name != "group":
            kinds.add("text" if source_type(name).is_text else "audio")
        else:
            kinds.add("unknown")

    return kinds
