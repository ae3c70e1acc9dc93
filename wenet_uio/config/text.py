"""`tokenizer_conf`: how text becomes labels. Keys are WeNet's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wenet_uio.config.base import Section


class TokenizerConf(Section):
    """Keys of all tokenizers."""

    symbol_table_path: str | None = None
    """char, bpe: units file with lines `symbol id`."""
    split_with_space: bool = False
    """char: the tokens are words between spaces instead of characters."""
    bpe_path: str | None = None
    """bpe: the sentencepiece model. whisper: the vocabulary, which is `multilingual.tiktoken` or `gpt2.tiktoken` of
    OpenAI, or `vocab.json` of Hugging Face; default: that of the installed package openai-whisper."""
    model_path: str | None = None
    """huggingface: tokenizer.json, or its folder. sentencepiece: the model, whose ids are used as they are."""
    seg_dict_path: str | None = None
    """paraformer: dictionary with lines `word piece piece ...`."""
    non_lang_syms_path: str | None = None
    """File of non-language symbols such as {NOISE}, one per line. Each symbol is one token."""
    is_multilingual: bool = False
    """whisper: false for a model that knows English only."""
    num_languages: Annotated[int, Field(gt=0)] = 1
    """whisper: number of languages that have a token: 99, or 100 since large-v3."""
    special_tokens: dict[str, Annotated[int, Field(ge=0)]] | None = None
    """Ids of <blank>, <unk>, <sos>, <eos>. Default of <sos> and <eos>: the unit <sos/eos>, else the last id."""
