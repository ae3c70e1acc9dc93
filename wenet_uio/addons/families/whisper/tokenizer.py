"""Splitter of the whisper tokenizer: byte pairs of a vocabulary of OpenAI, and the special tokens
of Whisper.

The package tiktoken cuts text into byte pairs; it is imported when a text is cut for the first time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wenet_uio.addons.families.whisper.tokens import (
    ENGLISH_LANGUAGES,
    LANGUAGES,
    TIMESTAMP_STEP,
    TIMESTAMPS,
)
from wenet_uio.addons.families.whisper.vocabulary_file import (
    EOT,
    OtherToken,
    WhisperVocabulary,
    installed_vocabulary,
    read_vocabulary,
)
from wenet_uio.base.imports import need_extra
from wenet_uio.text.byte_tokens import bytes_of, name_of, starts_word
from wenet_uio.text.char import split_symbols
from wenet_uio.text.labels import OwnUnits
from wenet_uio.text.special_ids import SpecialTokens

if TYPE_CHECKING:
    from tiktoken import Encoding

    from wenet_uio.config.text import PartConf

CUT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Where GPT-2 and Whisper cut a text before they look for byte pairs."""
SOT, NO_SPEECH = "<|startoftranscript|>", "<|nospeech|>"
TOKENS = {
    "eot": EOT,
    "sot": SOT,
    "translate": "<|translate|>",
    "transcribe": "<|transcribe|>",
    "sot_prev": "<|startofprev|>",
    "no_speech": NO_SPEECH,
    "no_timestamps": "<|notimestamps|>",
    "timestamp_begin": "<|0.00|>",
}
"""{name in tokenizer_conf.special_tokens: token in the vocabularies of OpenAI and Hugging Face}."""
NO_CAPTIONS = "<|nocaptions|>"
"""The token no_speech in most models of Hugging Face."""


@dataclass(frozen=True)
class WhisperSplitter(OwnUnits):
    """Cuts text into the byte pairs of a Whisper model. The text of special tokens is text like any
    other.

    Raises:
        OSError: there is no such file.
        ValueError: the file is no vocabulary, a symbol is no special token, or tiktoken is not
            installed.
    """

    path: str
    """`multilingual.tiktoken`, `gpt2.tiktoken`, `vocab.json`, or `tokenizer.json`."""
    num_languages: int
    """99, or 100 since large-v3."""
    non_lang_syms: tuple[str, ...] = ()
    """Special tokens that texts may have, such as <|nospeech|> or <|1.00|>. Each is one token."""

    path_key = "bpe_path"

    def __call__(self, text: str) -> list[str]:
        """Cut a text into tokens."""
        tokens: list[str] = []
        for part, is_symbol in split_symbols(text.strip(), self.non_lang_syms):
            if not is_symbol:
                tokens += self._cut_text(part)
            elif part in self._special_ids:
                tokens.append(part)
            else:
                raise ValueError(
                    f"non-language symbol {part!r} is no special token of Whisper, such as "
                    f"{NO_SPEECH}"
                )

        return tokens

    def _cut_text(self, text: str) -> list[str]:
        """Cut a text into added tokens, as they are written, and byte pairs."""
        longest_first = sorted(self._added_texts, key=len, reverse=True)
        parts = [text]
        if longest_first:
            parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)

        tokens: list[str] = []
        for part in parts:
            if part in self._added_texts:
                tokens.append(self._added_texts[part])
            else:
                ids = self._encoding.encode_ordinary(part)
                tokens.extend(self._token_names[token_id] for token_id in ids)
        return tokens

    def starts_word(self, previous: str, token: str) -> bool:
        """Tell whether `token` starts a new word; `previous` is the token, or the word so far,
        before it.
        """
        if token in self._special_ids or previous in self._special_ids:
            return True
        return starts_word(bytes_of(previous), bytes_of(token) or b" ")

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of the tokens without the special ones; bytes that are no UTF-8 become
        U+FFFD.
        """
        text_tokens = [token for token in tokens if token not in self._special_ids]
        text = b"".join(bytes_of(token) for token in text_tokens)
        return text.decode(errors="replace").strip()

    def identity(self) -> bytes:
        """Return the content of the vocabulary, number of languages, and the non-language symbols."""
        settings = repr((self.num_languages, self.non_lang_syms))
        return settings.encode() + Path(self.path).read_bytes()

    @cached_property
    def symbols(self) -> dict[str, int]:
        """{token: id} of the whole vocabulary."""
        return {name: unit for unit, name in enumerate(self._token_names)}

    @cached_property
    def _token_names(self) -> list[str]:
        names = [*map(name_of, self._vocabulary.ranks), *self._own_special_ids]
        known = set(names)
        for text, token in self._added.items():
            name = text if token.is_special else name_of(text.encode())
            if name in known:  # such as a byte pair with the same text
                name = "".join(f"<0x{byte:02X}>" for byte in text.encode())
            names.append(name)
        return names

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        """Ids of all tokens that are no part of a text, by name."""
        added = {name: token.id for name, token in self._added.items() if token.is_special}
        return self._own_special_ids | added

    @cached_property
    def _own_special_ids(self) -> dict[str, int]:
        """Ids of the special tokens of OpenAI by name; they follow the byte pairs."""
        return expected_ids((), len(self._vocabulary.ranks), self.num_languages)

    @cached_property
    def _added(self) -> dict[str, OtherToken]:
        """Tokens that somebody has added behind those of OpenAI, in the order of their ids.

        Raises:
            ValueError: special tokens of the file have other ids, or an added token has the id of
                another token.
        """
        tokens: dict[str, OtherToken] = {}
        for name, token in self._vocabulary.others.items():
            tokens[NO_SPEECH if name == NO_CAPTIONS else name] = token

        expected = expected_ids(tokens, len(self._vocabulary.ranks), self.num_languages)
        for name, token in tokens.items():
            if token.id != expected[name]:
                raise ValueError(
                    f"{self.path}: {name} has the id {token.id}; in a Whisper with "
                    f"{self.num_languages} languages it has {expected[name]}"
                )
        return {name: token for name, token in tokens.items() if name not in self._own_special_ids}

    @cached_property
    def _added_texts(self) -> dict[str, str]:
        """{text of an added token: its name}."""
        return {
            text: self._token_names[token.id]
            for text, token in self._added.items()
            if not token.is_special
        }

    @cached_property
    def _vocabulary(self) -> WhisperVocabulary:
        return read_vocabulary(self.path)

    @cached_property
    def _encoding(self) -> Encoding:
        """Return tiktoken's encoding with these byte pairs and special tokens."""
        need_extra("whisper", ("tiktoken",))
        # needs the package of this extra
        from tiktoken import Encoding

        return Encoding(
            "whisper",
            pat_str=CUT,
            mergeable_ranks=self._vocabulary.ranks,
            special_tokens=self._special_ids,
        )


def special_token_names(num_languages: int) -> list[str]:
    """Return the special tokens of OpenAI in the order of their ids, of which the first follows that of
    the last byte pair.
    """
    languages = [f"<|{code}|>" for code in LANGUAGES[:num_languages]]
    times = [f"<|{number * TIMESTAMP_STEP:.2f}|>" for number in range(TIMESTAMPS)]
    tasks = ["<|translate|>", "<|transcribe|>"]
    others = ["<|startoflm|>", "<|startofprev|>", NO_SPEECH, "<|notimestamps|>"]
    return [EOT, SOT, *languages, *tasks, *others, *times]


def expected_ids(tokens: Iterable[str], first_id: int, num_languages: int) -> dict[str, int]:
    """Return the ids of tokens that are no byte pairs: those of OpenAI come first, the others follow in
    the order given.

    Args:
        tokens: names of special and of added tokens.
        first_id: the id after the last byte pair.
    """
    names = special_token_names(num_languages)
    ids = {name: token_id for token_id, name in enumerate(names, first_id)}
    for name in tokens:
        ids.setdefault(name, first_id + len(ids))
    return ids


def build(conf: PartConf, non_lang_syms: tuple[str, ...]) -> WhisperSplitter:
    """Build the splitter of `tokenizer: whisper`.

    Raises:
        ValueError: a key is missing or impossible, or no vocabulary is given or installed.
    """
    stated = conf.model_fields_set
    lacks_languages = conf.is_multilingual and "num_languages" not in stated
    if "is_multilingual" not in stated or lacks_languages:
        raise ValueError(
            "tokenizer whisper needs tokenizer_conf.is_multilingual: false for a model that knows "
            "English only, or true and tokenizer_conf.num_languages (99, or 100 since large-v3)"
        )

    if not conf.is_multilingual and conf.num_languages != ENGLISH_LANGUAGES:
        raise ValueError(
            f"tokenizer_conf.num_languages {conf.num_languages}: a Whisper that knows English only "
            f"has tokens of {ENGLISH_LANGUAGES} languages; remove the key"
        )
    if conf.num_languages > len(LANGUAGES):
        raise ValueError(
            f"tokenizer_conf.num_languages {conf.num_languages}: Whisper has at most "
            f"{len(LANGUAGES)}"
        )

    path = conf.bpe_path or installed_vocabulary(multilingual=conf.is_multilingual)
    return WhisperSplitter(path, conf.num_languages, non_lang_syms)


def special_tokens_in(symbols: Mapping[str, int]) -> SpecialTokens | None:
    """Return the special tokens in a vocabulary of Whisper; None for another vocabulary."""
    if SOT not in symbols:
        return None

    ids = {name: symbols[token] for name, token in TOKENS.items() if token in symbols}
    if NO_CAPTIONS in symbols:
        ids.setdefault("no_speech", symbols[NO_CAPTIONS])
    if "no_timestamps" in ids:  # not all files of Hugging Face have the timestamps after it
        ids.setdefault("timestamp_begin", ids["no_timestamps"] + 1)

    return SpecialTokens(ids, ids["sot"], ids.get("eot"), ids.get("no_speech"))
