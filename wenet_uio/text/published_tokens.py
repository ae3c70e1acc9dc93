"""Special tokens of vocabularies that were published with a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wenet_uio.config.family import families


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
