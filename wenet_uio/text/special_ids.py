"""Ids of tokens with a fixed meaning, as a train.yaml has them: special tokens of the decoder, and
the blank of CTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wenet_uio.text.symbols import BLANK
from wenet_uio.text.tokenizer import OWN_UNITS, sos_and_eos
from wenet_uio.families.whisper.tokenizer import NO_CAPTIONS, SOT, TOKENS

if TYPE_CHECKING:
    from wenet_uio.config import Config
    from wenet_uio.config.text import TokenizerConf


def special_ids(conf: TokenizerConf, symbols: Mapping[str, int], size: int) -> dict[str, int]:
    """The special tokens of a train.yaml: those given, <sos> and <eos>, and in a vocabulary of
    Whisper its own.

    Raises:
        ValueError: an id of a token of Whisper differs from the vocabulary.
    """
    given = conf.special_tokens or {}
    found = _whisper_ids(symbols)
    for name in found.keys() & given.keys():
        if given[name] != found[name]:
            raise ValueError(
                f"tokenizer_conf.special_tokens.{name} is {given[name]}, but {found[name]} in the "
                "vocabulary: remove "
                "special_tokens, or correct num_languages (99, or 100 since large-v3) or bpe_path"
            )
    return {**given, **found, **sos_and_eos(conf, symbols, size)}


def blank_id(config: Config, symbols: Mapping[str, int]) -> int:
    """The blank of CTC: `ctc_blank_id`, or without this key the unit <blank>, as in WeNet, or
    Whisper's no_speech.

    Raises:
        ValueError: the key differs from <blank>, or is missing and a token of the tokenizer would
            be the blank.
    """
    conf = config.ctc_conf
    given = conf.ctc_blank_id if "ctc_blank_id" in conf.model_fields_set else None
    unit = symbols.get(BLANK)
    if given is not None and unit not in (None, given):
        raise ValueError(
            f"ctc_conf.ctc_blank_id is {given}, but {BLANK} is {unit} in "
            f"{config.tokenizer_conf.symbol_table_path}; "
            "remove the key, or write the units file again"
        )
    if given is not None:
        return given
    unit = _whisper_ids(symbols).get("no_speech", unit)
    if unit is None and config.tokenizer in OWN_UNITS:
        size = max(symbols.values()) + 1
        raise ValueError(
            f"ctc_conf.ctc_blank_id is missing, and tokenizer {config.tokenizer} has no {BLANK}: "
            "give an id that no "
            f"text has, such as {size} with output_dim {size + 1}"
        )
    return unit or 0


def _whisper_ids(symbols: Mapping[str, int]) -> dict[str, int]:
    """Ids of Whisper's tokens in a vocabulary of Whisper; empty for others."""
    if SOT not in symbols:
        return {}
    found = {name: symbols[token] for name, token in TOKENS.items() if token in symbols}
    if NO_CAPTIONS in symbols:
        found.setdefault("no_speech", symbols[NO_CAPTIONS])
    if "no_timestamps" in found:  # not all files of Hugging Face have the timestamps after it
        found.setdefault("timestamp_begin", found["no_timestamps"] + 1)
    return found
