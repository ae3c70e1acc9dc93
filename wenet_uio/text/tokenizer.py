"""Tokenizer: a splitter (text <-> tokens) with a symbol table (tokens <-> ids)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from wenet_uio.text.bpe import BpeSplitter
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.symbols import UNKNOWN, read_non_lang_syms, read_symbols

if TYPE_CHECKING:
    from wenet_uio.config import Config
    from wenet_uio.config.text import TokenizerConf


class Splitter(Protocol):
    """What cuts text into tokens and joins them again."""

    @property
    def exact_length(self) -> bool: ...

    def __call__(self, text: str) -> list[str]: ...

    def starts_word(self, previous: str, token: str) -> bool: ...

    def join(self, tokens: Sequence[str]) -> str: ...

    def identity(self) -> bytes:
        """Differs where texts may be cut differently."""
        ...


class Tokenizer:
    """Text to label ids and back."""

    def __init__(self, splitter: Splitter, symbols: dict[str, int]) -> None:
        self.splitter = splitter
        self.symbols = symbols
        self.vocab_size = max(symbols.values()) + 1
        self._unknown = symbols.get(UNKNOWN)
        self._symbol_of = {unit: symbol for symbol, unit in symbols.items()}

    @property
    def exact_length(self) -> bool:
        """Whether a text always has as many tokens as `text.strip()` has characters."""
        return self.splitter.exact_length

    @cached_property
    def digest(self) -> str:
        """Of the way in which text is cut; units files do not change it."""
        return hashlib.blake2b(self.splitter.identity(), digest_size=8).hexdigest()

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Cut `text` into tokens and look up their ids.

        Raises:
            ValueError: for a token outside a symbol table that has no <unk>.
        """
        tokens = self.splitter(text)
        ids = [self.symbols.get(token, self._unknown) for token in tokens]
        if None in ids:
            raise ValueError(f"{tokens[ids.index(None)]!r} of text {text!r} is not a unit, and there is no {UNKNOWN}")
        return tokens, ids

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of label ids.

        Raises:
            ValueError: for an id that no symbol has.
        """
        return self.splitter.join([self.symbol(unit) for unit in ids])

    def symbol(self, unit: int) -> str:
        """The token of a label id.

        Raises:
            ValueError: for an id that no symbol has.
        """
        try:
            return self._symbol_of[unit]
        except KeyError:
            raise ValueError(f"id {unit} has no symbol; the units end at {self.vocab_size - 1}") from None

    def words(self, ids: Sequence[int]) -> list[tuple[str, int, int]]:
        """Words of label ids: (text, place of its first id, place behind its last); spaces alone are none."""
        tokens = [self.symbol(unit) for unit in ids]
        starts = [
            place
            for place, token in enumerate(tokens)
            if place == 0 or self.splitter.starts_word(tokens[place - 1], token)
        ]
        words = [
            (self.splitter.join(tokens[first:last]), first, last) for first, last in pairwise([*starts, len(tokens)])
        ]
        return [(word, first, last) for word, first, last in words if word]


def build_splitter(
    kind: str,
    *,
    bpe_path: str | None = None,
    non_lang_syms_path: str | None = None,
    split_with_space: bool = False,
) -> Splitter:
    """The splitter of a `char` or `bpe` tokenizer, for which no units are needed.

    Raises:
        ValueError: for another kind, or bpe without a model.
    """
    non_lang_syms = read_non_lang_syms(non_lang_syms_path) if non_lang_syms_path else ()
    if kind == "char":
        return CharSplitter(non_lang_syms, split_with_space)
    if kind == "bpe":
        if not bpe_path:
            raise ValueError("tokenizer bpe needs the path of a sentencepiece model (tokenizer_conf.bpe_path)")
        return BpeSplitter(bpe_path, non_lang_syms)
    raise ValueError(f"unknown tokenizer {kind!r}; known: bpe, char")


def makes_one_token_a_character(config: Config) -> bool:
    """Whether the tokenizer of a config has `exact_length`; needs no units file, and no model for the answer no."""
    conf = config.tokenizer_conf
    return config.tokenizer == "char" and build_splitter("char", **_splitter_options(conf)).exact_length


def build_tokenizer(config: Config) -> Tokenizer:
    """The tokenizer that `tokenizer` and `tokenizer_conf` of a config describe.

    Raises:
        ValueError: for a missing path, a malformed file, or units that the config's model has no output for (other ones
            were made since it was trained). OSError: for a file that cannot be read.
    """
    conf = config.tokenizer_conf
    if not conf.symbol_table_path:
        raise ValueError("tokenizer_conf.symbol_table_path: the path of the units file is needed")
    splitter = build_splitter(config.tokenizer, **_splitter_options(conf))
    tokenizer = Tokenizer(splitter, read_symbols(conf.symbol_table_path))
    outputs = config.output_dim or config.vocab_size or tokenizer.vocab_size
    if outputs < tokenizer.vocab_size:
        raise ValueError(
            f"output_dim {outputs} has no room for the {tokenizer.vocab_size} units of {conf.symbol_table_path}"
        )
    return tokenizer


def _splitter_options(conf: TokenizerConf) -> dict[str, Any]:
    names = ("bpe_path", "non_lang_syms_path", "split_with_space")
    return {name: getattr(conf, name) for name in names}
