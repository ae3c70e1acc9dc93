"""The aggregate tokenizer: a tokenizer for each language, whose ids follow one another, as in NeMo.

The ids of the first language come first, then those of the second language, and so on; then
`<blank>` and `<sos/eos>`. The unit `a` of the language en is named `⟨en⟩a`, because languages may
share tokens. The fields of a sample say its language. Search may mix languages in one text; each
token is turned back by the tokenizer of its language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
        tokens = self.all.parts[self.language].splitter(text)
        return [unit_name(self.language, token) for token in tokens]

    @property
    def sampling(self) -> Sampling | None:
        """How the tokenizer of the language draws pieces."""
        return getattr(self.all.parts[self.language].splitter, "sampling", None)

    def sampled(self, text: str, random: Random) -> list[str]:
        """Cut a text into tokens, with pieces that are drawn; needs `sampling`."""
        tokens, _ = self.all.parts[self.language].tokenize(text, random)
        return [unit_name(self.language, token) for token in tokens]

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        return self.all.starts_word(previous, token)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens of any language."""
        return self.all.join(tokens)

    def identity(self) -> bytes:
        """Return the identity of the language's tokenizer."""
        splitter = self.all.parts[self.language].splitter
        return unit_name(self.language, "").encode() + splitter.identity()


@dataclass(frozen=True)
class AggregateSplitter:
    """Joins tokens of all languages.

    Cutting a text needs its language: `AggregateTokenizer.of` gives the tokenizer of one language.
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
        previous_pieces = _split_names(previous)
        language, piece = _split_names(token)[-1]
        follows_same = bool(previous_pieces) and previous_pieces[-1][0] == language
        if not follows_same or language not in self.parts:
            return True

        word = "".join(text for spoken, text in previous_pieces if spoken == language)
        return self.parts[language].splitter.starts_word(word, piece)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens.

        Between languages is a space if the next token begins a word that is no ideograph.
        """
        text = ""
        for language, run in self._language_runs(tokens):
            splitter = self.parts[language].splitter
            joined = splitter.join(run)
            if text and joined and splitter.starts_word("", run[0]) and not is_ideograph(joined[0]):
                text += " "

            text += joined

        return text

    def _language_runs(self, tokens: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Group consecutive tokens of one language into (language, its tokens).

        <blank> and <sos/eos>, which units files of a language have too, are left out.
        """
        runs: list[tuple[str, list[str]]] = []
        for names in tokens:
            for language, token in _split_names(names):
                if language not in self.parts or token in (BLANK, SOS_EOS):
                    continue
                if not runs or runs[-1][0] != language:
                    runs.append((language, []))
                runs[-1][1].append(token)

        return runs

    def identity(self) -> bytes:
        """Return the identities of all tokenizers."""
        return b"".join(
            unit_name(name, "").encode() + part.splitter.identity()
            for name, part in self.parts.items()
        )


def _split_names(names: str) -> list[tuple[str, str]]:
    """Split names in a row, such as `⟨en⟩a⟨de⟩ß`, into (language, token).

    The language of <blank> and <sos/eos> is empty.
    """
    # Text before the first name, then language and token of each name
    unnamed, *parts = _NAME.split(names)
    named = list(zip(parts[::2], parts[1::2], strict=True))
    return [("", unnamed), *named] if unnamed else named


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
        next_id = 0
        for language, part in parts.items():
            for token, unit in part.symbols.items():
                symbols[unit_name(language, token)] = next_id + unit
            next_id += part.vocab_size

        symbols |= {BLANK: next_id, SOS_EOS: next_id + 1}
        super().__init__(AggregateSplitter(dict(parts)), symbols)
        self.lang_field = lang_field
        self._tags: dict[str, str] = {}
        """Fields that a source sets on all of its samples."""

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
        field_names = OF_LANGUAGE[role]
        if role != "source":
            field_names = (self.lang_field, *field_names)

        # The first field that states a language counts; tags of the source win over the sample.
        stated = {**fields, **self._tags}
        languages = [str(stated[name]) for name in field_names if stated.get(name)]
        language = languages[0] if languages else None
        if language in self._tokenizers:
            return self._tokenizers[language]

        known = ", ".join(self._tokenizers)
        if language is None:
            raise UnknownLanguageError(
                f"none of the fields {', '.join(field_names)} says the language; known: {known}"
            )

        raise UnknownLanguageError(f"language {language!r} has no tokenizer; known: {known}")

    def with_tags(self, tags: Mapping[str, Any]) -> Tokenizer:
        """Return a tokenizer for samples on which a source sets these fields."""
        names = {self.lang_field}.union(*OF_LANGUAGE.values())
        copy = AggregateTokenizer(self.splitter.parts, self.lang_field)
        copy._tags = {name: str(tags[name]) for name in sorted(names & tags.keys())}
        return copy if copy._tags else self

    def spellings(self, phrase: str) -> list[list[str]]:
        """Return the tokens of a phrase in each language that has units for all of them.

        If there is no such language, return the tokens in the first language.
        """
        all_spellings: list[list[str]] = []
        known_spellings: list[list[str]] = []
        for language, tokenizer in self.splitter.parts.items():
            units = tokenizer.symbols.keys() - {UNKNOWN}
            for tokens in tokenizer.spellings(phrase):
                spelling = [unit_name(language, token) for token in tokens]
                all_spellings.append(spelling)
                if units >= set(tokens):
                    known_spellings.append(spelling)

        return known_spellings or all_spellings[:1]

    def identity(self) -> bytes:
        """Return the identities of the tokenizers, and the fields that say the language."""
        fields = repr((self.lang_field, sorted(self._tags.items())))
        return fields.encode() + self.splitter.identity()

    @cached_property
    def _tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizer of each language, which gives the units of the aggregate."""
        return {
            name: Tokenizer(
                LanguageSplitter(name, self.splitter),
                self.symbols,
                unknown=unit_name(name, UNKNOWN),
            )
            for name in self.splitter.parts
        }
