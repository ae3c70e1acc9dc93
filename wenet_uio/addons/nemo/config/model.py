"""What `model` of NeMo holds besides data and optimizer: a tokenizer, which becomes `tokenizer` and
`tokenizer_conf`; and an architecture, which is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.addons.nemo.config.keys import refuse_missing
from wenet_uio.addons.nemo.config.references import refuse_unresolved
from wenet_uio.config.base import ConfigError
from wenet_uio.config.nemo import SENTENCEPIECE_MODEL

ENCODER = {
    "d_model": "output_size",
    "n_layers": "num_blocks",
    "n_heads": "attention_heads",
    "conv_kernel_size": "cnn_module_kernel",
    "dropout": "dropout_rate",
}
"""{key of NeMo's Conformer: key of encoder_conf}."""
OWN_PARTS = ("encoder", "encoder_conf")
"""Keys of Config that show that a file has an architecture of this project."""


def check_model(
    model: Mapping[str, Any], where: str, notes: list[str], *, has_encoder: bool
) -> None:
    """Note keys that are not read.

    Args:
        model: keys of `model` of NeMo without those of data, tokenizer and optimizer.
        where: beginning of messages.
        notes: gets one line for all keys.
        has_encoder: whether the config has an encoder of this project.

    Raises:
        ConfigError: the keys describe an architecture, and the config has no encoder of this
            project.
    """
    parts = sorted(str(name) for name, part in model.items() if isinstance(part, Mapping))
    if parts and not has_encoder:
        raise ConfigError(
            f"{where}: the architecture of NeMo ({', '.join(parts)}) is not read; write at the top "
            f"of the yaml, or as overrides, {_suggested_encoder(model)}"
        )
    if parts:
        notes.append(
            f"{where}: the architecture of NeMo ({', '.join(parts)}) is not read: encoder, decoder "
            "and model_conf of this yaml are used"
        )


def _suggested_encoder(model: Mapping[str, Any]) -> str:
    """Return the text of an `encoder` and `encoder_conf` that have the sizes of NeMo's encoder."""
    encoder = model.get("encoder")
    if not isinstance(encoder, Mapping):
        encoder = {}

    conf: dict[str, int | float] = {}
    for nemo_key, our_key in ENCODER.items():
        value = encoder.get(nemo_key)
        if isinstance(value, (int, float)):
            conf[our_key] = value

    width, factor = conf.get("output_size"), encoder.get("ff_expansion_factor")
    if isinstance(width, int) and isinstance(factor, int):
        conf["linear_units"] = width * factor

    sizes = ", ".join(f"{key}: {value}" for key, value in conf.items())
    is_squeezeformer = "squeeze" in str(encoder.get("_target_", "")).lower()
    name = "squeezeformer" if is_squeezeformer else "conformer"
    return f"encoder: {name} and encoder_conf: {{{sizes or 'output_size: 256, num_blocks: 12'}}}"


WORD_PIECES = "vocab.txt"
"""File of word pieces in NeMo's folder of a tokenizer."""
TYPES = {"bpe": ("sentencepiece", SENTENCEPIECE_MODEL), "wpe": ("huggingface", WORD_PIECES)}
"""{type of NeMo: (tokenizer, file in the folder)}."""
NEUTRAL = ("update_tokenizer", "hf_kwargs", "custom_tokenizer")
"""Keys that change nothing if they are off."""
PROMPT_TOKENS = "spl_tokens"
"""Language of an aggregate whose units are those of Canary's prompt."""


def tokenizer_keys(section: Any, where: str, notes: list[str]) -> dict[str, Any]:
    """Return the keys of Config for a tokenizer of NeMo: `{type: bpe, dir: D}`, `{type: wpe, dir:
    D}`, or `{type: agg, langs: {en: {…}, …}}`.

    Args:
        section: keys of the tokenizer.
        where: beginning of messages.
        notes: gets a line if the section names no tokenizer.

    Raises:
        ConfigError: the tokenizer has no equal here; the message says what to write.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"{where}: expected type and dir, or type: agg and langs, found {section!r}"
        )

    refuse_unresolved(section, where)
    section = _without_neutral(section, where)
    if section.get("type") != "agg":
        if "dir" in section and section["dir"] is None:
            notes.append(
                f"{where}.dir: null, the tokenizer of a model of NeMo, which is not read; write "
                "tokenizer and tokenizer_conf"
            )
            return {}
        return _folder_tokenizer(section, where, "model.tokenizer")

    langs = section.get("langs")
    if not isinstance(langs, Mapping) or not langs:
        raise ConfigError(f"{where}.langs: expected a tokenizer for each language, found {langs!r}")

    languages = {}
    for language, part in langs.items():
        name = f"langs.{language}"
        keys = _folder_tokenizer(part, f"{where}.{name}", f"model.tokenizer.{name}")
        languages[str(language)] = {"tokenizer": keys["tokenizer"], **keys["tokenizer_conf"]}

    return {"tokenizer": "aggregate", "tokenizer_conf": {"languages": languages}}


def _without_neutral(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the section of a tokenizer without keys of NeMo that are off; refuse those that are on."""
    if section.get("custom_tokenizer"):
        changes = ["~model.tokenizer.custom_tokenizer"]
        if PROMPT_TOKENS in (section.get("langs") or {}):
            changes.append(f"~model.tokenizer.langs.{PROMPT_TOKENS}")
        raise ConfigError(
            f"{where}.custom_tokenizer: its code is not run, and no prompt is put before the texts; "
            f"train on the texts with the tokenizers of the languages: --override_config "
            f"{' '.join(changes)}; or write model: whisper, which has a prompt of languages and task"
        )
    for key in NEUTRAL:
        if section.get(key):
            raise ConfigError(
                f"{where}.{key}: has no equal here; remove it, or write tokenizer and tokenizer_conf"
            )

    return {key: value for key, value in section.items() if key not in NEUTRAL}


def _folder_tokenizer(section: Any, where: str, prefix: str) -> dict[str, Any]:
    """Return the keys of Config for a tokenizer of NeMo in one folder.

    Args:
        section: `{type: bpe, dir: D}` or `{type: wpe, dir: D}`.
        where: beginning of messages.
        prefix: how overrides name the section.
    """
    tokenizer_type = None
    if isinstance(section, Mapping):
        refuse_missing(section, where, prefix)
        tokenizer_type = section.get("type")

    if tokenizer_type not in TYPES or not isinstance(section.get("dir"), str):
        files = " or ".join(
            f"type: {name} and dir, the folder of {TYPES[name][1]}" for name in TYPES
        )
        raise ConfigError(
            f"{where}: expected {files}, found {section!r}; for another tokenizer write tokenizer "
            "and tokenizer_conf"
        )

    tokenizer, file = TYPES[tokenizer_type]
    folder = section["dir"]
    path = folder if folder.endswith(file) else f"{folder.rstrip('/')}/{file}"
    return {"tokenizer": tokenizer, "tokenizer_conf": {"model_path": path}}
