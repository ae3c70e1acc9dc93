"""Ids of special tokens of the decoder and of the blank of CTC: as a train.yaml has them, and as a
vocabulary was published with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wenet_uio.config.family import families
from wenet_uio.text.symbols import BLANK, EOS, SOS, SOS_EOS
from wenet_uio.text.tokenizer import OWN_UNITS

if TYPE_CHECKING:
    from wenet_uio.config import Config
    from wenet_uio.config.text import TokenizerConf


@dataclass(frozen=True)
class SpecialTokens:
    """Tokens with a fixed meaning in a published vocabulary."""

    ids: Mapping[str, int]
    """Ids by the names that tokenizer_conf.special_tokens has for them."""
    sos: int
    """The first token of a transcript."""
    eos: int | None
    """The last token of a transcript."""
    blank: int | None
    """A token that no text has."""


def published_tokens(symbols: Mapping[str, int]) -> SpecialTokens | None:
    """Return the special tokens of the family that has this vocabulary.

    None for a vocabulary of no family.
    """
    for family in families():
        tokens = family.special_tokens(symbols) if family.special_tokens else None
        if tokens:
            return tokens

    return None


def special_ids(conf: TokenizerConf, symbols: Mapping[str, int], size: int) -> dict[str, int]:
    """Return the special tokens of a train.yaml.

    These are the stated ones, <sos> and <eos>, and those of a published vocabulary.

    Raises:
        ValueError: an id that is given differs from the vocabulary.
    """
    stated = conf.special_tokens or {}
    published = published_tokens(symbols)
    ids = {} if published is None else published.ids
    for name in ids.keys() & stated.keys():
        if stated[name] != ids[name]:
            raise ValueError(
                f"tokenizer_conf.special_tokens.{name} is {stated[name]}, but {ids[name]} in the "
                "vocabulary: remove special_tokens, or correct num_languages (99, or 100 since "
                "large-v3) or bpe_path"
            )

    return {**stated, **ids, **sos_and_eos(conf, symbols, size)}


def blank_id(config: Config, symbols: Mapping[str, int]) -> int:
    """Return the blank of CTC.

    It is the first of these that there is: `ctc_blank_id`; the blank of a published vocabulary; the
    unit <blank>, as in WeNet; of a tokenizer with ids of its own, the id after its last one, as in
    NeMo; 0.

    Raises:
        ValueError: the key differs from <blank>, or is missing and `output_dim` has no id left.
    """
    conf = config.ctc_conf
    configured = conf.ctc_blank_id if "ctc_blank_id" in conf.model_fields_set else None
    unit = symbols.get(BLANK)
    if configured is not None and unit not in (None, configured):
        raise ValueError(
            f"ctc_conf.ctc_blank_id is {configured}, but {BLANK} is {unit} in "
            f"{config.tokenizer_conf.symbol_table_path}; remove the key, or write the units file "
            "again"
        )

    if configured is not None:
        return configured

    published = published_tokens(symbols)
    if published is not None and published.blank is not None:
        return published.blank
    if unit is not None:
        return unit
    if config.tokenizer in OWN_UNITS:
        return _id_after_tokens(config, max(symbols.values()) + 1)

    return 0


def _id_after_tokens(config: Config, unit: int) -> int:
    """Return the id after those of the tokenizer; ValueError if `output_dim` does not have it."""
    if config.vocabulary_size is not None and config.vocabulary_size <= unit:
        raise ValueError(
            f"ctc_conf.ctc_blank_id is missing, and tokenizer {config.tokenizer} has no {BLANK}: "
            f"remove output_dim {config.vocabulary_size}, or give an id that no text has, such as "
            f"{unit} with output_dim {unit + 1}"
        )

    return unit


def output_size(config: Config, symbols: Mapping[str, int], size: int) -> int:
    """Return the number of outputs: `output_dim`, or the size of the vocabulary. A tokenizer with
    ids of its own and without <blank> gets two more, for <blank> and <sos/eos>.

    Args:
        config: may state `output_dim` and `ctc_conf.ctc_blank_id`.
        symbols: of the tokenizer.
        size: of its vocabulary.
    """
    if config.vocabulary_size is not None:
        return config.vocabulary_size
    return size if blank_id(config, symbols) < size else size + 2


def sos_and_eos(conf: TokenizerConf, symbols: Mapping[str, int], size: int) -> dict[str, int]:
    """Return ids of <sos> and <eos>.

    Each is the first of these that there is: that of special_tokens; the token with which a
    published vocabulary begins or ends a transcript; the unit <sos/eos>; the last id.

    Args:
        symbols: the units file; may be empty if special_tokens has both.
        size: of the vocabulary.
    """
    stated = conf.special_tokens or {}
    published = published_tokens(symbols)
    published_ids: dict[str, int | None] = {}
    if published is not None:
        published_ids = {SOS: published.sos, EOS: published.eos}

    ids: dict[str, int] = {}
    for name in (SOS, EOS):
        published_id = published_ids.get(name)
        if name in stated:
            ids[name] = stated[name]
        elif published_id is not None:
            ids[name] = published_id
        else:
            ids[name] = symbols.get(SOS_EOS, size - 1)

    return ids
