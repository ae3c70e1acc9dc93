"""Tokenizer: a splitter (text <-> tokens) and a symbol table (tokens <-> ids)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from wenet_uio.text.bpe import BpeSplitter, SentencepieceSplitter
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.hugging_face import HuggingFaceSplitter, tokenizer_file
from wenet_uio.text.seg_dict import SegDictSplitter
from wenet_uio.text.symbols import EOS, SOS, SOS_EOS, UNKNOWN, read_non_lang_syms, read_symbols
from wenet_uio.text.whisper import EOT, SOT, WhisperSplitter, installed_vocabulary
from wenet_uio.text.whisper_tokens import LANGUAGES

if TYPE_CHECKING:
    from wenet_uio.config import Config
    from wenet_uio.config.text import TokenizerConf


_NO_ID = -1
"""Stands for the id of a token outside a symbol table that has no <unk>."""


class Splitter(Protocol):
    """Cuts text into tokens and joins tokens to text."""

    @property
    def exact_length(self) -> bool:
        """Whether every text has as many tokens as `text.strip()` has characters."""
        ...

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        ...

    def starts_word(self, previous: str, token: str) -> bool:
        """Whether `token` starts a new word; `previous` is the token, or the word so far, before it."""
        ...

    def join(self, tokens: Sequence[str]) -> str:
        """The text of the tokens."""
        ...

    def identity(self) -> bytes:
        """Bytes that differ between splitters that may cut a text differently."""
        ...


class Tokenizer:
    """Converts text to label ids, and label ids to text."""

    def __init__(self, splitter: Splitter, symbols: dict[str, int]) -> None:
        self.splitter = splitter
        self.symbols = symbols
        self.vocab_size = max(symbols.values()) + 1
        self._unknown = symbols.get(UNKNOWN, _NO_ID)
        self._symbol_of = {unit: symbol for symbol, unit in symbols.items()}

    @property
    def exact_length(self) -> bool:
        """Whether every text has as many tokens as `text.strip()` has characters."""
        return self.splitter.exact_length

    @cached_property
    def digest(self) -> str:
        """Digest of the splitter. It changes when texts may be cut differently, but not with the units file."""
        return hashlib.blake2b(self.splitter.identity(), digest_size=8).hexdigest()

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """Cut `text` into tokens and look up their ids.

        Raises:
            ValueError: the symbol table has neither a token nor <unk>.
        """
        tokens = self.splitter(text)
        ids = [self.symbols.get(token, self._unknown) for token in tokens]
        if _NO_ID in ids:
            token = tokens[ids.index(_NO_ID)]
            raise ValueError(f"{token!r} of text {text!r} is not a unit, and the units file has no {UNKNOWN}")
        return tokens, ids

    def spellings(self, phrase: str) -> list[list[str]]:
        """The tokens of a phrase at the start of a text and, if they differ, after a space."""
        first = self.splitter(phrase)
        if not isinstance(self.splitter, OwnUnits):
            return [first]
        later = self.splitter(f"a {phrase}")[len(self.splitter("a")) :]
        return [first] if later == first else [first, later]

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of label ids.

        Raises:
            ValueError: an id is not in the symbol table.
        """
        return self.splitter.join([self.symbol(unit) for unit in ids])

    def symbol(self, unit: int) -> str:
        """The token of a label id.

        Raises:
            ValueError: the id is not in the symbol table.
        """
        try:
            return self._symbol_of[unit]
        except KeyError:
            raise ValueError(f"id {unit} has no symbol; the largest id is {self.vocab_size - 1}") from None

    def words(self, ids: Sequence[int]) -> list[tuple[str, int, int]]:
        """Group label ids into words: (text, place of the first id, place after the last id); spaces are no words."""
        tokens = [self.symbol(unit) for unit in ids]
        starts: list[int] = []
        word = ""
        for place, token in enumerate(tokens):
            if place == 0 or self.splitter.starts_word(word, token):
                starts.append(place)
                word = ""
            word += token
        words = [
            (self.splitter.join(tokens[first:last]), first, last) for first, last in pairwise([*starts, len(tokens)])
        ]
        return [(word, first, last) for word, first, last in words if word]


class CallableTokenizer:
    """A function from a text to label ids in the place of a Tokenizer, for loops that are not those of this package."""

    exact_length = False

    def __init__(self, function: Callable[[str], Iterable[int]]) -> None:
        self.function = function

    @property
    def digest(self) -> str:
        """A function has no digest, so counts of its tokens cannot be kept.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "dataset_conf counts tokens before planning (batch_tokens, max_tps or min_tps), which needs a Tokenizer of "
            "wenet_uio.text; give build_tokenizer(config), or remove these keys"
        )

    def tokenize(self, text: str) -> tuple[list[str], list[int]]:
        """No tokens, and the ids of a text."""
        return [], [int(unit) for unit in self.function(text)]


AnyTokenizer = Tokenizer | CallableTokenizer
OwnUnits = WhisperSplitter | HuggingFaceSplitter | SentencepieceSplitter
"""Splitters whose file has the ids of the tokens, so that there is no units file."""


def build_splitter(
    kind: str,
    *,
    bpe_path: str | None = None,
    seg_dict_path: str | None = None,
    non_lang_syms_path: str | None = None,
    split_with_space: bool = False,
) -> Splitter:
    """Build the splitter of a `char`, `bpe` or `paraformer` tokenizer; this needs no units file.

    Raises:
        ValueError: unknown kind, bpe without a model, or paraformer without a dictionary.
        OSError: the file of non-language symbols cannot be read.
    """
    non_lang_syms = read_non_lang_syms(non_lang_syms_path) if non_lang_syms_path else ()
    if kind == "char":
        return CharSplitter(non_lang_syms, split_with_space)
    if kind == "bpe":
        if not bpe_path:
            raise ValueError("tokenizer bpe needs the path of a sentencepiece model (tokenizer_conf.bpe_path)")
        return BpeSplitter(bpe_path, non_lang_syms)
    if kind == "paraformer":
        if not seg_dict_path:
            raise ValueError("tokenizer paraformer needs the path of a dictionary (tokenizer_conf.seg_dict_path)")
        return SegDictSplitter(seg_dict_path)
    raise ValueError(f"unknown tokenizer {kind!r}; known: bpe, char, paraformer")


def _build_whisper(conf: TokenizerConf, non_lang_syms: tuple[str, ...]) -> OwnUnits:
    if not {"is_multilingual", "num_languages"} <= conf.model_fields_set:
        raise ValueError(
            "tokenizer whisper needs tokenizer_conf.is_multilingual (false: a model that knows English only) and "
            "tokenizer_conf.num_languages (99, or 100 since large-v3)"
        )
    if conf.num_languages > len(LANGUAGES):
        raise ValueError(f"tokenizer_conf.num_languages {conf.num_languages}: Whisper has at most {len(LANGUAGES)}")
    path = conf.bpe_path or installed_vocabulary(multilingual=conf.is_multilingual)
    return WhisperSplitter(path, conf.num_languages, non_lang_syms)


def _build_hugging_face(conf: TokenizerConf, non_lang_syms: tuple[str, ...]) -> OwnUnits:
    return HuggingFaceSplitter(tokenizer_file(_model_path(conf, "a tokenizer.json or its folder")), non_lang_syms)


def _build_sentencepiece(conf: TokenizerConf, non_lang_syms: tuple[str, ...]) -> OwnUnits:
    return SentencepieceSplitter(_model_path(conf, "a sentencepiece model"), non_lang_syms)


def _model_path(conf: TokenizerConf, what: str) -> str:
    if not conf.model_path:
        raise ValueError(f"tokenizer_conf.model_path is missing: the path of {what}")
    return conf.model_path


OWN_UNITS: dict[str, Callable[[TokenizerConf, tuple[str, ...]], OwnUnits]] = {
    "whisper": _build_whisper,
    "huggingface": _build_hugging_face,
    "sentencepiece": _build_sentencepiece,
}
"""{tokenizer without a units file: builds its splitter from the section and the non-language symbols}."""


def makes_one_token_a_character(config: Config) -> bool:
    """Whether the tokenizer of a config has `exact_length`; reads neither units file nor sentencepiece model."""
    conf = config.tokenizer_conf
    return config.tokenizer == "char" and build_splitter("char", **_splitter_options(conf)).exact_length


def build_tokenizer(config: Config) -> Tokenizer:
    """Build the tokenizer that `tokenizer` and `tokenizer_conf` of a config describe.

    Raises:
        ValueError: a path or a package is missing, a file is malformed, or there are more units than outputs of the
            model. The last happens when the units file was written again after the training.
        OSError: a file cannot be read.
    """
    conf = config.tokenizer_conf
    if config.tokenizer in OWN_UNITS:
        path = conf.non_lang_syms_path
        splitter = OWN_UNITS[config.tokenizer](conf, read_non_lang_syms(path) if path else ())
        tokenizer, units = Tokenizer(splitter, splitter.symbols), f"tokenizer {config.tokenizer}"
    else:
        if not conf.symbol_table_path:
            raise ValueError("tokenizer_conf.symbol_table_path: the path of the units file is missing")
        splitter, units = build_splitter(config.tokenizer, **_splitter_options(conf)), conf.symbol_table_path
        tokenizer = Tokenizer(splitter, read_symbols(units))
    outputs = config.vocabulary_size or tokenizer.vocab_size
    if outputs < tokenizer.vocab_size:
        raise ValueError(f"output_dim {outputs} has no room for the {tokenizer.vocab_size} units of {units}")
    return tokenizer


def sos_and_eos(conf: TokenizerConf, symbols: Mapping[str, int], size: int) -> dict[str, int]:
    """Ids of <sos> and <eos>: those of special_tokens, else the unit <sos/eos>, else the last id.

    In a vocabulary of Whisper they are its first and last token of a transcript.

    Args:
        symbols: the units file; may be empty if special_tokens has both.
        size: of the vocabulary.
    """
    given, unit = conf.special_tokens or {}, symbols.get(SOS_EOS, size - 1)
    units = {SOS: symbols.get(SOT, unit), EOS: symbols.get(EOT, unit) if SOT in symbols else unit}
    return units | {name: given[name] for name in units if name in given}


def files_of(config: Config) -> dict[str, str]:
    """The keys of tokenizer_conf with the files that the tokenizer reads: a folder becomes the file in it.

    Raises:
        ValueError: a path is missing, or the vocabulary of Whisper is neither given nor installed.
    """
    if config.tokenizer not in OWN_UNITS:
        return {}
    key = "bpe_path" if config.tokenizer == "whisper" else "model_path"
    return {key: OWN_UNITS[config.tokenizer](config.tokenizer_conf, ()).path}


def _splitter_options(conf: TokenizerConf) -> dict[str, Any]:
    names = ("bpe_path", "seg_dict_path", "non_lang_syms_path", "split_with_space")
    return {name: getattr(conf, name) for name in names}
