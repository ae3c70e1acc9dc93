"""Splitter of the char tokenizer: characters, or words between spaces, as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wenet_uio.text.symbols import WORD_START

IDEOGRAPH = re.compile("([\u4e00-\u9fff])")


@dataclass(frozen=True)
class CharSplitter:
    """Cuts text into characters and non-language symbols; a space becomes ▁."""

    non_lang_syms: tuple[str, ...] = ()
    """Symbols that are one token each. Upper and lower case match; the token has the case of this
    list."""
    split_with_space: bool = False
    """Cut into words between spaces instead of characters."""

    @property
    def exact_length(self) -> bool:
        """Whether every text has as many tokens as `text.strip()` has characters."""
        return not self.split_with_space and not self.non_lang_syms

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        tokens: list[str] = []
        for part, is_symbol in split_symbols(text.strip(), self.non_lang_syms):
            if is_symbol:
                tokens.append(part)
            elif self.split_with_space:
                tokens.extend(part.split())
            else:
                tokens.extend(WORD_START if char.isspace() else char for char in part.strip())

        return tokens

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word after `previous`, a token or the word so far."""
        return self.split_with_space or starts_word(previous, token, self.non_lang_syms)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens; ▁ becomes a space."""
        separator = " " if self.split_with_space else ""
        return separator.join(tokens).replace(WORD_START, " ").strip()

    def identity(self) -> bytes:
        """State the fields; counted tokens and positions of runs depend on these bytes."""
        symbols, by_space = self.non_lang_syms, self.split_with_space
        return f"CharSplitter(non_lang_syms={symbols!r}, split_with_space={by_space!r})".encode()


def split_symbols(text: str, symbols: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Cut `text` at its symbols into (part, whether the part is a symbol).

    A longer symbol wins over a shorter one.
    """
    if not symbols:
        if text:
            yield text, False
        return

    spelling = {symbol.casefold(): symbol for symbol in symbols}
    longest_first = sorted(symbols, key=len, reverse=True)
    pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})", re.IGNORECASE)
    # The group in the pattern makes every other part of the split a symbol.
    for index, part in enumerate(pattern.split(text)):
        if index % 2:
            yield spelling[part.casefold()], True
        elif part:
            yield part, False


def starts_word(previous: str, token: str, symbols: Sequence[str]) -> bool:
    """Tell whether a word starts with `token`.

    It does after a space, and before and after an ideograph or one of `symbols`.
    """
    if token.startswith(WORD_START):
        return True
    return any(part in symbols or is_ideograph(part) for part in (previous, token))


def is_ideograph(run: str) -> bool:
    """Tell whether `run` is a single Chinese character."""
    return IDEOGRAPH.fullmatch(run) is not None
