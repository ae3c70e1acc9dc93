"""Splitter of the whisper tokenizer: byte pairs of a vocabulary of OpenAI, and the special tokens
of Whisper.

The vocabulary is a file of OpenAI (`multilingual.tiktoken`, or `gpt2.tiktoken` of the models that
know English only), or the `vocab.json` of a Whisper model in the layout of Hugging Face. The
package tiktoken cuts text into byte pairs; it is imported when a text is cut for the first time.
"""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wenet_uio.addons.families.whisper.tokens import (
    ENGLISH_LANGUAGES,
    LANGUAGES,
    TIMESTAMP_STEP,
    TIMESTAMPS,
)
from wenet_uio.base.imports import need_extra
from wenet_uio.text.byte_tokens import byte_of_char, bytes_of, name_of, starts_word
from wenet_uio.text.char import split_symbols
from wenet_uio.text.labels import OwnUnits
from wenet_uio.text.special_ids import SpecialTokens

if TYPE_CHECKING:
    from tiktoken import Encoding

    from wenet_uio.config.text import PartConf

CUT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Where GPT-2 and Whisper cut a text before they look for byte pairs."""
EOT, SOT, NO_SPEECH = "<|endoftext|>", "<|startoftranscript|>", "<|nospeech|>"
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
    """`multilingual.tiktoken`, `gpt2.tiktoken`, or `vocab.json`."""
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
                ids = self._encoding.encode_ordinary(part)
                tokens.extend(self._token_names[token_id] for token_id in ids)
            elif part in self._special_ids:
                tokens.append(part)
            else:
                raise ValueError(
                    f"non-language symbol {part!r} is no special token of Whisper, such as "
                    f"{NO_SPEECH}"
                )

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
        return [*map(name_of, self._ranks), *self._special_ids]

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        """Return the ids of the special tokens by name; they follow the byte pairs."""
        languages = [f"<|{code}|>" for code in LANGUAGES[: self.num_languages]]
        times = [f"<|{number * TIMESTAMP_STEP:.2f}|>" for number in range(TIMESTAMPS)]
        tasks = ["<|translate|>", "<|transcribe|>"]
        others = ["<|startoflm|>", "<|startofprev|>", NO_SPEECH, "<|notimestamps|>"]
        names = [EOT, SOT, *languages, *tasks, *others, *times]
        first_id = len(self._ranks)
        return {name: token_id for token_id, name in enumerate(names, first_id)}

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        return read_ranks(self.path)

    @cached_property
    def _encoding(self) -> Encoding:
        """Return tiktoken's encoding with these byte pairs and special tokens."""
        need_extra("whisper", ("tiktoken",))
        # needs the package of this extra
        from tiktoken import Encoding

        return Encoding(
            "whisper", pat_str=CUT, mergeable_ranks=self._ranks, special_tokens=self._special_ids
        )


def read_ranks(path: str | Path) -> dict[bytes, int]:
    """Read a vocabulary of byte pairs as {token: id}, in the order of the ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has another format, or ids are missing.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: no such vocabulary (multilingual.tiktoken, gpt2.tiktoken or vocab.json)"
        )

    content = Path(path).read_bytes()
    try:
        if content.lstrip().startswith(b"{"):
            ranks = _parse_json_ranks(json.loads(content))
        else:
            ranks = _parse_base64_ranks(content)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{path}: expected `base64 id` lines as in multilingual.tiktoken, or a vocab.json"
        ) from None

    single_bytes = {bytes([byte]) for byte in range(256)}
    has_all_ids = sorted(ranks.values()) == list(range(len(ranks)))
    has_all_bytes = ranks.keys() >= single_bytes
    if not has_all_ids or not has_all_bytes:
        raise ValueError(
            f"{path}: the ids are not 0, 1, 2, …, or a byte has none; restore the file"
        )

    return dict(sorted(ranks.items(), key=lambda item: item[1]))


def _parse_base64_ranks(content: bytes) -> dict[bytes, int]:
    """Return the rank of each byte pair from a file of tiktoken, lines of base64 and rank."""
    ranks: dict[bytes, int] = {}
    for line in content.splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return ranks


def _parse_json_ranks(values: dict[str, Any]) -> dict[bytes, int]:
    """Return the rank of each byte pair from vocab.json, which spells each byte as a character."""
    byte_by_char = byte_of_char()
    ranks: dict[bytes, int] = {}
    for token, rank in values.items():
        if token != EOT:
            token_bytes = bytes(byte_by_char[char] for char in token)
            ranks[token_bytes] = int(rank)
    return ranks


def installed_vocabulary(*, multilingual: bool) -> str:
    """Return the path of the vocabulary in the package openai-whisper, without its import.

    Raises:
        ValueError: openai-whisper is not installed.
    """
    name = "multilingual.tiktoken" if multilingual else "gpt2.tiktoken"
    spec = importlib.util.find_spec("whisper")
    if spec is not None:
        for folder in spec.submodule_search_locations or ():
            file = Path(folder) / "assets" / name
            if file.is_file():
                return str(file)

    raise ValueError(
        f"tokenizer whisper needs {name} of the package openai-whisper: pip install --no-deps "
        "openai-whisper, or give the file, or vocab.json of a model of Hugging Face, as "
        "tokenizer_conf.bpe_path"
    )


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
