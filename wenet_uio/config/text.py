"""`tokenizer` and `tokenizer_conf`: how text becomes labels. Keys are WeNet's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from wenet_uio.config.base import NotNegative, Positive, Section, ZeroOrMore
from wenet_uio.config.named_code import Loaded

Language = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
"""Name of a language; it is a part of file names."""


class PartConf(Section):
    """Keys of the tokenizer of one language, or of all."""

    symbol_table_path: str | None = None
    """char, bpe: units file with lines `symbol id`."""
    split_with_space: bool = False
    """char: the tokens are words between spaces instead of characters."""
    bpe_path: str | None = None
    """bpe: the sentencepiece model. whisper: the vocabulary, which is `multilingual.tiktoken` or
    `gpt2.tiktoken` of OpenAI, or `vocab.json` or `tokenizer.json` of Hugging Face; default:
    that of the installed package openai-whisper."""
    model_path: str | None = None
    """huggingface: tokenizer.json, its folder, or vocab.txt with a word piece a line.
    sentencepiece: the model, whose ids are used as they are."""
    seg_dict_path: str | None = None
    """paraformer: dictionary with lines `word piece piece ...`."""
    non_lang_syms_path: str | None = None
    """File of non-language symbols such as {NOISE}, one per line. Each symbol is one token."""
    sample_alpha: ZeroOrMore | None = None
    """bpe, sentencepiece: sub-word regularisation in training. The pieces of each word are drawn. A
    unigram model draws with the probability P ** alpha (0.1 to 0.5). A BPE model leaves out a merge
    with the probability alpha (0.1). None: always the best pieces. Not with batch_tokens, max_tps
    and min_tps, which need fixed numbers of tokens."""
    sample_nbest: Annotated[int, Field(gt=1)] = 16
    """Segmentations of a word that a unigram model draws from."""
    is_multilingual: bool = False
    """whisper: false for a model that knows English only."""
    num_languages: Positive = 99
    """whisper: number of languages that have a token: 100 since large-v3. A model that knows English
    only has the tokens of 99 languages, too."""


class LanguageTokenizerConf(PartConf):
    """The tokenizer of one language of an aggregate."""

    tokenizer: Literal["char", "bpe", "huggingface", "sentencepiece"] = "sentencepiece"


class TokenizerConf(PartConf):
    """Keys of all tokenizers."""

    languages: dict[Language, LanguageTokenizerConf] | None = None
    """aggregate: the tokenizer of each language, in the order of their ids. Languages may share a
    file; each has ids of its own."""
    lang_field: str = "lang"
    """aggregate: field of a sample, or tag of its source, that says the language of the text.
    Without this field it is `target_language` (of a pair of texts), `target_lang` or `language`;
    that of the first text of a pair is `source_language` or `source_lang`."""
    special_tokens: dict[str, NotNegative] | None = None
    """Ids of <blank>, <unk>, <sos>, <eos>. Default of <sos> and <eos>: the unit <sos/eos>, else the
    last id."""

    @model_validator(mode="after")
    def _has_languages(self) -> TokenizerConf:
        if self.languages is not None and not self.languages:
            raise ValueError(
                "languages is empty: write `en: {model_path: en.model}` for each language"
            )
        return self


@dataclass(frozen=True)
class TokenizerKind:
    """What the package knows about a kind of tokenizer."""

    build: Loaded
    """`build(conf, non_lang_syms)` returns the splitter, from a PartConf and the non-language
    symbols."""
    own_units: bool = False
    """Whether its file has the ids of the tokens, so that there is no units file."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """{key with a path: name of the copy in the folder of a run, if it is not the usual one}."""


AGGREGATE = "aggregate"
"""Name of the tokenizer that has a tokenizer for each language."""
TOKENIZERS: dict[str, TokenizerKind] = {
    "char": TokenizerKind(Loaded("wenet_uio.text.tokenizer:build_char")),
    "bpe": TokenizerKind(Loaded("wenet_uio.text.tokenizer:build_bpe")),
    "whisper": TokenizerKind(
        Loaded("wenet_uio.addons.families.whisper.tokenizer:build"),
        own_units=True,
        copies={"bpe_path": "whisper.vocab"},
    ),
    "huggingface": TokenizerKind(
        Loaded("wenet_uio.text.tokenizer:build_hugging_face"), own_units=True
    ),
    "sentencepiece": TokenizerKind(
        Loaded("wenet_uio.text.tokenizer:build_sentencepiece"),
        own_units=True,
        copies={"model_path": "sentencepiece.model"},
    ),
    "paraformer": TokenizerKind(Loaded("wenet_uio.addons.families.paraformer.tokenizer:build")),
}
"""{name in the yaml: kind of tokenizer}; an aggregate has several of them."""
