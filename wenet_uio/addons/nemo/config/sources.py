"""Data that one loader of NeMo names, as sources of a mixture; `text_data`, the text that hybrid
ASR-TTS models speak, as a source of type tts_text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wenet_uio.addons.nemo.config.batches import bucket_batch_sizes, one_per_bucket
from wenet_uio.addons.nemo.config.keys import refuse_missing
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


def loader_sources(section: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the sources that a loader names: sections of the yaml of a mixture.

    `input_cfg` names them; otherwise the paths of the loader are the data, and `input_cfg` goes
    before them. Buckets that were made before training are one source each, if they have weights or
    sizes.

    Raises:
        ConfigError: the data cannot be read; the message says what to write.
    """
    if "input_cfg" in section:
        inherited = _keys_in(section, "text_field", "token_equivalent_duration")
        return [inherited | source for source in _config_sources(section["input_cfg"], where)]

    text_field = _keys_in(section, "text_field")
    for key, source_name in (("cuts_path", "lhotse_cuts"), ("shar_path", "lhotse_shar")):
        if key in section:
            return [{"type": source_name, key: section[key], **text_field}]

    return [text_field | source for source in _manifest_sources(section, where)]


def _keys_in(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return those of some keys that a section states, with their values."""
    return {key: section[key] for key in keys if key in section}


def _config_sources(input_cfg: Any, where: str) -> list[dict[str, Any]]:
    """Return the sources of `input_cfg`: a list, or the path of a yaml with one."""
    if isinstance(input_cfg, str):
        return [{"type": "group", "input_cfg": input_cfg}]

    if not isinstance(input_cfg, list) or not all(isinstance(source, dict) for source in input_cfg):
        raise ConfigError(
            f"{where}.input_cfg: expected a list of sources or the path of a yaml, found "
            f"{input_cfg!r}"
        )

    return input_cfg


def _manifest_sources(section: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the sources of `manifest_filepath`, with or without tars; none without a manifest."""
    is_tarred = section.get("is_tarred", "tarred_audio_filepaths" in section)
    source_name = "nemo_tarred" if is_tarred else "nemo"
    keys = ("manifest_filepath", "tarred_audio_filepaths") if is_tarred else ("manifest_filepath",)
    files = {key: section.get(key) for key in keys}

    if "bucketing_weights" in section or "bucketing_batch_size" in section:
        return [
            {"type": source_name, **bucket} for bucket in _bucket_sources(files, section, where)
        ]
    if not files["manifest_filepath"]:
        return []
    if not all(files.values()):
        raise ConfigError(f"{where}.is_tarred: needs tarred_audio_filepaths")

    return [{"type": source_name, **files}]


def _bucket_sources(
    files: Mapping[str, Any], section: Mapping[str, Any], where: str
) -> list[dict[str, Any]]:
    """Return keys of a source for each ready-made bucket: its files, how often it is read, and its
    batch size.
    """
    count = _bucket_count(files, where)
    weights = one_per_bucket(
        section.get("bucketing_weights", [1] * count), count, f"{where}.bucketing_weights"
    )
    sizes = bucket_batch_sizes(section, count, where)

    buckets = []
    for number in range(count):
        bucket = {key: paths[number] for key, paths in files.items()}
        if weights[number] != 1:
            bucket["repeat"] = weights[number]
        if sizes:
            bucket["batch_conf"] = {"batch_type": "static", "batch_size": sizes[number]}
        buckets.append(bucket)

    return buckets


def _bucket_count(files: Mapping[str, Any], where: str) -> int:
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


def source_kinds(sources: list[dict[str, Any]]) -> set[str]:
    """Return what sources and the members of groups hold: text, audio, or unknown in files of
    sources. Conversations, which have no audio of their own, are text.
    """
    kinds: set[str] = set()
    for source in sources:
        members, name = source.get("input_cfg"), source.get("type")
        if isinstance(members, list):
            kinds |= source_kinds(members)
        elif name in SOURCE_TYPES and name != "group":
            kinds.add("text" if source_type(name).is_text else "audio")
        else:
            kinds.add("unknown")

    return kinds


SAMPLING = (
    "asr_tts_sampling_technique",
    "asr_tts_sampling_temperature",
    "asr_tts_sampling_probabilities",
)
"""How texts and audio are mixed. NeMo reads these keys in `train_ds` and in `text_data`."""
SPEECH = ("text_data", *SAMPLING)
"""Keys of a loader with text to be spoken."""
FILES_OF_TEXTS = ("manifest_filepath", "speakers_filepath")
NOT_NEEDED_OF_TEXTS = {
    "min_words": "blank texts are left out; filter_conf.min_length bounds the planned speech",
    "max_words": "filter_conf.max_duration bounds the planned speech",
    "tokenizer_workers": "the data workers tokenize",
}
DEFAULT_TEMPERATURE = 5
"""NeMo's."""


def mix_text_data(
    sources: list[dict[str, Any]], section: Mapping[str, Any], where: str, notes: list[str]
) -> dict[str, Any]:
    """Return keys of `data` for the audio of a loader and its `text_data`, mixed as in NeMo.

    Args:
        sources: sources of audio; may be empty.
        section: keys of the loader.
        where: beginning of messages.
        notes: gets a line for each key that is not needed.

    Raises:
        ConfigError: a key is unknown, or the manifest or the probabilities are missing.
    """
    text = section.get("text_data")
    if not text:
        return {"sources": sources}

    _check_text_data(text, f"{where}.text_data", notes)
    text_source = {
        "type": "tts_text",
        **{key: text[key] for key in FILES_OF_TEXTS if text.get(key)},
    }
    sampling = [text.get(key) or section.get(key) for key in SAMPLING]
    return _mix_audio_and_text(sources, text_source, sampling, where)


def _mix_audio_and_text(
    audio: list[dict[str, Any]], text: dict[str, Any], sampling: Sequence[Any], where: str
) -> dict[str, Any]:
    """Return keys of `data` that mix sources of audio with a source of text.

    Args:
        sampling: values of the keys SAMPLING.
    """
    technique, temperature, shares = sampling
    if not audio or technique is None:
        return {"sources": [*audio, text]}
    if technique == "temperature":
        return {"sources": [*audio, text], "temperature": temperature or DEFAULT_TEMPERATURE}

    # The shares are those of all audio and of the text, so all audio is one source.
    all_audio = {"type": "group", "input_cfg": audio}
    audio_share, text_share = _sampling_shares(technique, shares, where)
    return {"sources": [{**all_audio, "weight": audio_share}, {**text, "weight": text_share}]}


def _sampling_shares(technique: str, shares: Any, where: str) -> Sequence[float]:
    """Return shares of audio and of text."""
    if technique not in ("random", "round-robin"):
        raise ConfigError(
            f"{where}.{SAMPLING[0]}: {technique!r} is unknown; known: random, round-robin, "
            "temperature"
        )

    weights = [1, 1] if technique == "round-robin" else shares
    if not isinstance(weights, list) or len(weights) != 2:
        raise ConfigError(
            f"{where}.{SAMPLING[2]}: expected the shares of audio and of text, found {weights}"
        )

    return weights


def _check_text_data(text: Any, where: str, notes: list[str]) -> None:
    """Refuse a `text_data` without a manifest or with unknown keys, and note unused keys."""
    if not isinstance(text, Mapping) or not text.get(FILES_OF_TEXTS[0]):
        raise ConfigError(
            f"{where}: needs manifest_filepath, the texts to be spoken; found {text!r}"
        )

    known = (*FILES_OF_TEXTS, *SAMPLING, *NOT_NEEDED_OF_TEXTS)
    if unknown := sorted(set(text) - set(known)):
        raise ConfigError(f"{where}.{unknown[0]}: unknown key; known: {', '.join(known)}")

    refuse_missing(text, where, "model.train_ds.text_data")
    notes.append(
        f"{where}: an operator must speak these texts; name it in dataset_conf.operators with "
        "after: decode"
    )
    for key, reason in NOT_NEEDED_OF_TEXTS.items():
        if key in text:
            notes.append(f"{where}.{key}: not needed here, because {reason}")
