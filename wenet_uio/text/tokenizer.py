"""Build the tokenizer that a config describes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wenet_uio.config.text import (
    AGGREGATE,
    TOKENIZERS,
    LanguageTokenizerConf,
    PartConf,
    TokenizerConf,
)
from wenet_uio.text.aggregate import AggregateTokenizer
from wenet_uio.text.bpe import BpeSplitter, SentencepieceSplitter
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.hugging_face import HuggingFaceSplitter, tokenizer_file
from wenet_uio.text.labels import OwnUnits, Splitter, Tokenizer
from wenet_uio.text.sampling import Sampling
from wenet_uio.text.symbols import read_non_lang_syms, read_symbols

if TYPE_CHECKING:
    from wenet_uio.config import Config

SAMPLING = ("bpe", "sentencepiece")
"""Tokenizers with sub-word regularisation."""
OWN_UNITS = tuple(name for name, kind in TOKENIZERS.items() if kind.own_units)
"""Tokenizers without a units file."""


def build_splitter(kind: str, **options: Any) -> Splitter:
    """Build the splitter of a tokenizer with a units file, which this does not need.

    Args:
        kind: a name in TOKENIZERS, but not in OWN_UNITS.
        options: keys of tokenizer_conf.

    Raises:
        ValueError: the kind is unknown, or a key that it needs is missing.
        OSError: the file of non-language symbols cannot be read.
    """
    known = sorted(set(TOKENIZERS) - set(OWN_UNITS))
    if kind not in known:
        raise ValueError(f"unknown tokenizer {kind!r}; known: {', '.join(known)}")
    return _build_from_conf(kind, PartConf(**options))


def _build_from_conf(kind: str, conf: PartConf) -> Any:
    """Build the splitter of a tokenizer, with the non-language symbols of its file."""
    non_lang_syms: tuple[str, ...] = ()
    if conf.non_lang_syms_path:
        non_lang_syms = read_non_lang_syms(conf.non_lang_syms_path)
    return TOKENIZERS[kind].build(conf, non_lang_syms)


def build_char(conf: PartConf, non_lang_syms: tuple[str, ...]) -> CharSplitter:
    """Build the splitter of `tokenizer: char`."""
    return CharSplitter(non_lang_syms, conf.split_with_space)


def build_bpe(conf: PartConf, non_lang_syms: tuple[str, ...]) -> BpeSplitter:
    """Build the splitter of `tokenizer: bpe`."""
    if not conf.bpe_path:
        raise ValueError(
            "tokenizer bpe needs the path of a sentencepiece model (tokenizer_conf.bpe_path)"
        )
    return BpeSplitter(conf.bpe_path, non_lang_syms)


def build_hugging_face(conf: PartConf, non_lang_syms: tuple[str, ...]) -> OwnUnits:
    """Build the splitter of `tokenizer: huggingface`."""
    path = tokenizer_file(_model_path(conf, "a tokenizer.json or its folder"))
    return HuggingFaceSplitter(path, non_lang_syms)


def build_sentencepiece(conf: PartConf, non_lang_syms: tuple[str, ...]) -> OwnUnits:
    """Build the splitter of `tokenizer: sentencepiece`."""
    path = _model_path(conf, "a sentencepiece model")
    return SentencepieceSplitter(path, non_lang_syms, _build_sampling(conf))


def _build_sampling(conf: PartConf) -> Sampling | None:
    return None if conf.sample_alpha is None else Sampling(conf.sample_alpha, conf.sample_nbest)


def _model_path(conf: PartConf, description: str) -> str:
    """Return `model_path`; without it, raise an error that has the description of the file."""
    if not conf.model_path:
        raise ValueError(f"tokenizer_conf.model_path is missing: the path of {description}")
    return conf.model_path


def makes_one_token_a_character(config: Config) -> bool:
    """Tell whether the tokenizer of a config has `exact_length`.

    Neither units file nor sentencepiece model is read for this.
    """
    conf = config.tokenizer_conf
    return config.tokenizer == "char" and _build_from_conf("char", conf).exact_length


def build_tokenizer(config: Config) -> Tokenizer:
    """Build the tokenizer that `tokenizer` and `tokenizer_conf` of a config describe.

    Raises:
        ValueError: a path or a package is missing, a file is malformed, or there are more units
            than outputs of the model. The last happens when the units file was written again after
            the training.
        OSError: a file cannot be read.
    """
    if config.tokenizer == AGGREGATE:
        tokenizer = _build_aggregate(config.tokenizer_conf)
        units = "all languages of tokenizer_conf"
    else:
        tokenizer, units = _build_part(config.tokenizer, config.tokenizer_conf)

    outputs = config.vocabulary_size or tokenizer.vocab_size
    if outputs < tokenizer.vocab_size:
        raise ValueError(
            f"output_dim {outputs} has no room for the {tokenizer.vocab_size} units of {units}"
        )

    return tokenizer


def _build_aggregate(conf: TokenizerConf) -> AggregateTokenizer:
    """Build the tokenizers of all languages, and join them."""
    if conf.sample_alpha is not None:
        raise ValueError(
            "tokenizer_conf.sample_alpha: an aggregate has this key in each section of languages"
        )

    parts: dict[str, Tokenizer] = {}
    for language, part in languages_of(conf).items():
        try:
            parts[language] = _build_part(part.tokenizer, part)[0]
        except ValueError as error:
            raise ValueError(f"tokenizer_conf.languages.{language}: {error}") from None

    return AggregateTokenizer(parts, conf.lang_field)


def languages_of(conf: TokenizerConf) -> dict[str, LanguageTokenizerConf]:
    """Return the tokenizer section of each language of an aggregate.

    Raises:
        ValueError: there is none.
    """
    if conf.languages is None:
        raise ValueError(
            "tokenizer aggregate needs tokenizer_conf.languages, such as "
            "{en: {tokenizer: sentencepiece, model_path: en.model}, zh: {tokenizer: char, "
            "symbol_table_path: zh.txt}}"
        )
    return conf.languages


def _build_part(kind: str, conf: PartConf) -> tuple[Tokenizer, str]:
    """Return the tokenizer of one section, and the name of its units for messages."""
    if conf.sample_alpha is not None and kind not in SAMPLING:
        raise ValueError(
            f"tokenizer_conf.sample_alpha: tokenizer {kind} has no sampling; "
            f"{' and '.join(SAMPLING)} have"
        )

    if kind in OWN_UNITS:
        splitter: OwnUnits = _build_from_conf(kind, conf)
        return Tokenizer(splitter, splitter.symbols), f"tokenizer {kind}"
    if not conf.symbol_table_path:
        raise ValueError("tokenizer_conf.symbol_table_path: the path of the units file is missing")

    splitter = _build_from_conf(kind, conf)
    if isinstance(splitter, BpeSplitter):
        splitter = replace(splitter, sampling=_build_sampling(conf))

    return Tokenizer(splitter, read_symbols(conf.symbol_table_path)), conf.symbol_table_path


def files_of(config: Config) -> dict[str, Any]:
    """Return the keys of tokenizer_conf with the files that the tokenizer reads.

    A folder becomes the file in it.

    Of an aggregate, the key is `languages`.

    Raises:
        ValueError: a path is missing, or a vocabulary is neither given nor installed.
    """
    if config.tokenizer != AGGREGATE:
        return _part_files(config.tokenizer, config.tokenizer_conf)

    parts = languages_of(config.tokenizer_conf)
    return {
        "languages": {
            name: part.model_copy(update=_part_files(part.tokenizer, part))
            for name, part in parts.items()
        }
    }


def _part_files(kind: str, conf: PartConf) -> dict[str, str]:
    """Return {key of a tokenizer's section: file that the tokenizer reads}; empty for units files."""
    if kind not in OWN_UNITS:
        return {}
    splitter: OwnUnits = TOKENIZERS[kind].build(conf, ())
    return {splitter.path_key: splitter.path}
