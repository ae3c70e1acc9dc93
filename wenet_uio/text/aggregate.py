"""The aggregate tokenizer: a tokenizer for each language, whose ids follow one another, as in NeMo.

The ids of the first language come first, then those of the second language, and so on; then
`<blank>` and `<sos/eos>`. The unit `a` of the language en is named `⟨en⟩a`, because languages may
share tokens. The fields of a sample say its language. Search may mix languages in one text; each
token is turned back by the tokenizer of its language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from random import Random
from typing import Any

from wenet_uio.text.char import is_ideograph
from wenet_uio.text.labels import Role, Tokenizer
from wenet_uio.text.sampling import Sampling
from wenet_uio.text.symbols import BLANK, SOS_EOS, UNKNOWN

_NAME = re.compile("⟨([^⟨⟩]+)⟩")
OF_LANGUAGE = {
    "text": ("target_language", "target_lang", "language"),
    "source": ("source_language", "source_lang", "language"),
}
"""{text of a pair: fields that say its language}. `lang_field` is looked up before the fields of
`text`."""


class UnknownLanguageError(ValueError):
    """The language of a text is not stated, or has no tokenizer."""


def unit_name(language: str, token: str) -> str:
    """Return the name of a language's token in the symbol table."""
    return f"⟨{language}⟩{token}"


@dataclass(frozen=True)
class LanguageSplitter:
    """Cuts texts of one language of an aggregate; joins tokens of all."""

    language: str
    all: AggregateSplitter

    exact_length = False

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        return [
            unit_name(self.language, token)
            for token in self.all.parts[self.language].splitter(text)
        ]

    @property
    def sampling(self) -> Sampling | None:
        """How the tokenizer of the language draws pieces."""
        return getattr(self.all.parts[self.language].splitter, "sampling", None)

    def sampled(self, text: str, random: Random) -> list[str]:
        """Cut a text into tokens, with pieces that are drawn; needs `sampling`."""
        return [
            unit_name(self.language, token)
            for token in self.all.parts[self.language].tokenize(text, random)[0]
        ]

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        return self.all.starts_word(previous, token)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens of any language."""
        return self.all.join(tokens)

    def identity(self) -> bytes:
        """Return the identity of the language's tokenizer."""
        return (
            unit_name(self.language, "").encode()
            + self.all.parts[self.language].splitter.identity()
        )


@dataclass(frozen=True)
class AggregateSplitter:
    """Joins tokens of all languages.

    Cutting a text needs its language, see `AggregateTokenizer.of`.
    """

    parts: Mapping[str, Tokenizer]

    exact_length = False

    def __call__(self, text: str) -> list[str]:
        """Refuse the text: its language is not known.

        Raises:
            UnknownLanguageError: always.
        """
        raise UnknownLanguageError(
            f"the language of {text[:40]!r} is not stated; known: {', '.join(self.parts)}"
        )

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word: also after a token of another language."""
        before, (language, piece) = _pieces(previous), _pieces(token)[-1]
        if not before or before[-1][0] != language or language not in self.parts:
            return True
        same = "".join(text for spoken, text in before if spoken == language)
        return self.parts[language].splitter.starts_word(same, piece)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens.

        Between languages is a space if the next token begins a word that is no ideograph.
        """
        text = ""
        for language, run in self._runs(tokens):
            splitter = self.parts[language].splitter
            joined = splitter.join(run)
            if text and joined and splitter.starts_word("", run[0]) and not is_ideograph(joined[0]):
                text += " "

            text += joined

        return text

    def _runs(self, tokens: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield consecutive tokens of one language.

        <blank> and <sos/eos>, which units files of a language have too, are left out.
        """
        pieces = (piece for token in tokens for piece in _pieces(token))
        pieces = (
            piece for piece in pieces if piece[0] in self.parts and piece[1] not in (BLANK, SOS_EOS)
        )
        for language, run in groupby(pieces, key=lambda piece: piece[0]):
            yield language, [token for _, token in run]

    def identity(self) -> bytes:
        """Return the identities of all tokenizers."""
        return b"".join(
            unit_name(name, "").encode() + part.splitter.identity()
            for name, part in self.parts.items()
        )


def _pieces(names: str) -> list[tuple[str, str]]:
    """Return (language, token) of each name in a row of names.

    The language of <blank> and <sos/eos> is empty.
    """
    first, *rest = _NAME.split(names)
    return ([("", first)] if first else []) + list(zip(rest[::2], rest[1::2], strict=True))


class AggregateTokenizer(Tokenizer):
    """Converts label ids of all languages to text; has a tokenizer for texts of each language."""

    splitter: AggregateSplitter

    def __init__(self, parts: Mapping[str, Tokenizer], lang_field: str = "lang") -> None:
        """Join tokenizers.

        Args:
            parts: the tokenizer of each language, in the order of their ids.
            lang_field: field of a sample that says the language of its text.
        """
        symbols: dict[str, int] = {}
        first = 0
        for language, part in parts.items():
            symbols |= {
                unit_name(language, token): first + unit for token, unit in part.symbols.items()
            }
            first += part.vocab_size

        super().__init__(
            AggregateSplitter(dict(parts)), symbols | {BLANK: first, SOS_EOS: first + 1}
        )
        self.lang_field = lang_field
        self._tags: dict[str, str] = {}

    @cached_property
    def samples(self) -> bool:
        """Whether the tokenizer of a language draws pieces."""
        return any(part.samples for part in self.splitter.parts.values())

    def of(self, fields: Mapping[str, Any], role: Role = "text") -> Tokenizer:
        """Return the tokenizer of the language that the fields of a sample state.

        Its ids are those of the aggregate.

        Raises:
            UnknownLanguageError: no language is stated, or it has no tokenizer.
        """
        names = OF_LANGUAGE[role] if role == "source" else (self.lang_field, *OF_LANGUAGE[role])
        stated = {**fields, **self._tags}
        language = next((str(stated[name]) for name in names if stated.get(name)), None)
        if language in self._of_language:
            return self._of_language[language]

        known = ", ".join(self._of_language)
        if language is None:
            raise UnknownLanguageError(
                f"none of the fields {', '.join(names)} says the language; known: {known}"
            )

        raise UnknownLanguageError(f"language {language!r} has no tokenizer; known: {known}")

    def with_tags(self, tags: Mapping[str, Any]) -> Tokenizer:
        """Return a tokenizer for samples on which a source sets these fields."""
        names = {self.lang_field, *(name for names in OF_LANGUAGE.values() for name in names)}
        copy = AggregateTokenizer(self.splitter.parts, self.lang_field)
        copy._tags = {name: str(tags[name]) for name in sorted(names & tags.keys())}
        return copy if copy._tags else self

    def spellings(self, phrase: str) -> list[list[str]]:
        """Return the tokens of a phrase in each language that has units for all of it.

        If no language has, those of the first one.
        """
        parts = self.splitter.parts
        all_spellings = [
            (name, units) for name, part in parts.items() for units in part.spellings(phrase)
        ]
        spelled = [
            (name, tokens)
            for name, tokens in all_spellings
            if parts[name].symbols.keys() - {UNKNOWN} >= set(tokens)
        ]
        return [
            [unit_name(name, token) for token in units]
            for name, units in spelled or all_spellings[:1]
        ]

    def identity(self) -> bytes:
        """Return the identities of the tokenizers, and the fields that say the language."""
        return (
            repr((self.lang_field, sorted(self._tags.items()))).encode() + self.splitter.identity()
        )

    @cached_property
    def _of_language(self) -> dict[str, Tokenizer]:
        return {
            name: Tokenizer(
                LanguageSplitter(name, self.splitter),
                self.symbols,
                unknown=unit_name(name, UNKNOWN),
            )
            for name in self.splitter.parts
        }
