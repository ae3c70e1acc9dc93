"""Text that NeMo's hybrid ASR-TTS models speak, `train_ds.text_data`, as a source of type
tts_text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wenet_uio.addons.nemo.config.keys import refuse_missing
from wenet_uio.config.base import ConfigError

SAMPLING = (
    "asr_tts_sampling_technique",
    "asr_tts_sampling_temperature",
    "asr_tts_sampling_probabilities",
)
"""How texts and audio are mixed. NeMo reads these keys in `train_ds` and in `text_data`."""
SPEECH = ("text_data", *SAMPLING)
"""Keys of a loader with text to be spoken."""
FILES = ("manifest_filepath", "speakers_filepath")
NOT_NEEDED = {
    "min_words": "blank texts are left out; filter_conf.min_length bounds the planned speech",
    "max_words": "filter_conf.max_duration bounds the planned speech",
    "tokenizer_workers": "the data workers tokenize",
}
DEFAULT_TEMPERATURE = 5
"""NeMo's."""


def with_text_data(
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

    _check(text, f"{where}.text_data", notes)
    text_source = {"type": "tts_text", **{key: text[key] for key in FILES if text.get(key)}}
    sampling = [text.get(key) or section.get(key) for key in SAMPLING]
    return _mixed(sources, text_source, sampling, where)


def _mixed(
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
    audio_share, text_share = _weights(technique, shares, where)
    return {"sources": [{**all_audio, "weight": audio_share}, {**text, "weight": text_share}]}


def _weights(technique: str, shares: Any, where: str) -> Sequence[float]:
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


def _check(text: Any, where: str, notes: list[str]) -> None:
    """Refuse a `text_data` without a manifest or with unknown keys, and note unused keys."""
    if not isinstance(text, Mapping) or not text.get(FILES[0]):
        raise ConfigError(
            f"{where}: needs manifest_filepath, the texts to be spoken; found {text!r}"
        )

    known = (*FILES, *SAMPLING, *NOT_NEEDED)
    if unknown := sorted(set(text) - set(known)):
        raise ConfigError(f"{where}.{unknown[0]}: unknown key; known: {', '.join(known)}")

    refuse_missing(text, where, "model.train_ds.text_data")
    notes.append(
        f"{where}: an operator must speak these texts; name it in dataset_conf.operators with "
        "after: decode"
    )
    notes += [
        f"{where}.{key}: not needed here, because {NOT_NEEDED[key]}"
        for key in NOT_NEEDED
        if key in text
    ]
