"""NeMo's `model.tokenizer` as `tokenizer` and `tokenizer_conf`: sentencepiece models, one or one
for each language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wenet_uio.config.base import ConfigError

MODEL = "tokenizer.model"
"""File of a sentencepiece model in NeMo's folder of a tokenizer."""


def tokenizer_keys(section: Any, where: str) -> dict[str, Any]:
    """Return the keys of Config for a tokenizer of NeMo: `{type: bpe, dir: D}` or `{type: agg,
    langs: {en: {…}, …}}`.

    Raises:
        ConfigError: the tokenizer is no sentencepiece model; the message says what to write.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"{where}: expected type and dir, or type: agg and langs, found {section!r}"
        )

    if section.get("type") != "agg":
        return {
            "tokenizer": "sentencepiece",
            "tokenizer_conf": {"model_path": _model(section, where)},
        }

    langs = section.get("langs")
    if not isinstance(langs, Mapping) or not langs:
        raise ConfigError(f"{where}.langs: expected a tokenizer for each language, found {langs!r}")

    models = {
        str(language): {
            "tokenizer": "sentencepiece",
            "model_path": _model(part, f"{where}.langs.{language}"),
        }
        for language, part in langs.items()
    }
    return {"tokenizer": "aggregate", "tokenizer_conf": {"languages": models}}


def _model(section: Any, where: str) -> str:
    kind = section.get("type") if isinstance(section, Mapping) else None
    if kind != "bpe" or not isinstance(section.get("dir"), str):
        raise ConfigError(
            f"{where}: expected type: bpe and dir, the folder of {MODEL}, found {section!r}; for "
            "another tokenizer "
            "write tokenizer and tokenizer_conf"
        )

    return f"{section['dir'].rstrip('/')}/{MODEL}"
