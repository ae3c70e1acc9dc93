"""`tokenizer_conf`: how text becomes labels. Keys are WeNet's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wenet_uio.config.base import Section


class TokenizerConf(Section):
    """Keys of the char, bpe and paraformer tokenizers."""

    symbol_table_path: str | None = None
    """Units file with lines `symbol id`."""
    split_with_space: bool = False
    """char: the tokens are words between spaces instead of characters."""
    bpe_path: str | None = None
    """bpe: the sentencepiece model."""
    seg_dict_path: str | None = None
    """paraformer: dictionary with lines `word piece piece ...`."""
    non_lang_syms_path: str | None = None
    """File of non-language symbols such as {NOISE}, one per line. Each symbol is one token."""
    is_multilingual: bool = False
    """Not used: a key of WeNet's whisper tokenizer."""
    num_languages: Annotated[int, Field(gt=0)] = 1
    """Not used: a key of WeNet's whisper tokenizer."""
    special_tokens: dict[str, Annotated[int, Field(ge=0)]] | None = None
    """Ids of <blank>, <unk>, <sos>, <eos>. Default of <sos> and <eos>: the unit <sos/eos>, else the last id."""
