"""Characters, or words between spaces, as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wenet_uio.text.symbols import WORD_START

IDEOGRAPH = re.compile("([\u4e00-\u9fff])")


@dataclass(frozen=True)
class CharSplitter:
    """Every character is a token, a space is ▁, a non-language symbol stays whole."""

    non_lang_syms: tuple[str, ...] = ()
    """Found in any case, and given back as spelt here."""
    split_with_space: bool = False
    """A token is what stands between spaces."""

    @property
    def exact_length(self) -> bool:
        """Whether a text has as many tokens as characters, outer spaces aside."""
        return not self.split_with_space and not self.non_lang_syms

    def __call__(self, text: str) -> list[str]:
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
        """Whether a new word starts with `token`, behind the token (or the word so far) `previous`."""
        return self.split_with_space or starts_word(previous, token, self.non_lang_syms)

    def join(self, tokens: Sequence[str]) -> str:
        """Text of the tokens; ▁ is a space again."""
        return (" " if self.split_with_space else "").join(tokens).replace(WORD_START, " ").strip()

    def identity(self) -> bytes:
        """All that decides how text is cut."""
        return repr(self).encode()


def split_symbols(text: str, symbols: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Cut `text` at the symbols in it: (part, whether it is a symbol), longest symbol first."""
    if not symbols:
        if text:
            yield text, False
        return
    spelling = {symbol.casefold(): symbol for symbol in symbols}
    longest_first = sorted(symbols, key=len, reverse=True)
    pattern = re.compile(f"({'|'.join(map(re.escape, longest_first))})", re.IGNORECASE)
    for place, part in enumerate(pattern.split(text)):
        if place % 2:
            yield spelling[part.casefold()], True
        elif part:
            yield part, False


def starts_word(previous: str, token: str, symbols: Sequence[str]) -> bool:
    """Whether a word starts with `token`: behind a space, and with and behind an ideograph or one of `symbols`."""
    return token.startswith(WORD_START) or any(part in symbols or is_ideograph(part) for part in (previous, token))


def is_ideograph(run: str) -> bool:
    """Whether `run` is a single Chinese character."""
    return IDEOGRAPH.fullmatch(run) is not None
