"""Files of Whisper's vocabulary: `multilingual.tiktoken` and `gpt2.tiktoken` of OpenAI, `vocab.json`
and `tokenizer.json` of Hugging Face.

A file has the byte pairs with the ids 0, 1, 2, …; those of Hugging Face also have Whisper's special
tokens, and tokens that somebody has added behind them.
"""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

from wenet_uio.text.byte_tokens import byte_of_char

EOT = "<|endoftext|>"


class OtherToken(NamedTuple):
    """A token of a vocabulary that is no byte pair."""

    id: int
    is_special: bool
    """Whether it is no part of a text."""


class WhisperVocabulary(NamedTuple):
    """The content of a file."""

    ranks: dict[bytes, int]
    """{byte pair: id}, in the order of the ids."""
    others: dict[str, OtherToken]
    """Special and added tokens, in the order of their ids."""


def read_vocabulary(path: str | Path) -> WhisperVocabulary:
    """Read the byte pairs of a vocabulary, and the other tokens that its file names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has another format, or ids are missing.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: no such vocabulary (multilingual.tiktoken, gpt2.tiktoken, vocab.json or "
            "tokenizer.json)"
        )

    content = Path(path).read_bytes()
    try:
        if content.lstrip().startswith(b"{"):
            ranks, others = _parse_json(json.loads(content))
        else:
            ranks, others = _parse_base64_ranks(content), {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"{path}: expected `base64 id` lines as in multilingual.tiktoken, or a vocab.json or "
            "tokenizer.json of a Whisper"
        ) from None

    single_bytes = {bytes([byte]) for byte in range(256)}
    has_all_ids = sorted(ranks.values()) == list(range(len(ranks)))
    has_all_bytes = ranks.keys() >= single_bytes
    if not has_all_ids or not has_all_bytes:
        raise ValueError(
            f"{path}: the ids are not 0, 1, 2, …, or a byte has none; restore the file"
        )

    return WhisperVocabulary(
        dict(sorted(ranks.items(), key=lambda item: item[1])),
        dict(sorted(others.items(), key=lambda item: item[1])),
    )


def _parse_base64_ranks(content: bytes) -> dict[bytes, int]:
    """Return the rank of each byte pair from a file of tiktoken, lines of base64 and rank."""
    ranks: dict[bytes, int] = {}
    for line in content.splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return ranks


def _parse_json(values: dict[str, Any]) -> tuple[dict[bytes, int], dict[str, OtherToken]]:
    """Return byte pairs and other tokens from a vocab.json, {token: id}, or from a tokenizer.json, which
    has it as `model.vocab`, and a list `added_tokens`. Both spell each byte as a character.
    """
    is_tokenizer = isinstance(values.get("model"), dict)
    id_by_token = values["model"]["vocab"] if is_tokenizer else values
    added = values.get("added_tokens", []) if is_tokenizer else []
    others = {
        entry["content"]: OtherToken(int(entry["id"]), bool(entry["special"])) for entry in added
    }

    ranks: dict[bytes, int] = {}
    byte_by_char = byte_of_char()
    for token, rank in id_by_token.items():
        if token == EOT:
            others.setdefault(token, OtherToken(int(rank), is_special=True))
        elif token not in others or not others[token].is_special:
            others.pop(token, None)  # a byte pair that was added again keeps its id
            token_bytes = bytes(byte_by_char[char] for char in token)
            ranks[token_bytes] = int(rank)
    return ranks, others


def write_tokenizer_json(vocabulary: WhisperVocabulary) -> str:
    """Return the content of a tokenizer.json with what this module reads: for a vocabulary whose added
    tokens stand in several files.
    """
    char_of = {byte: char for char, byte in byte_of_char().items()}
    pairs = {
        "".join(char_of[byte] for byte in pair): rank for pair, rank in vocabulary.ranks.items()
    }
    added = [
        {"id": token.id, "content": name, "special": token.is_special}
        for name, token in vocabulary.others.items()
    ]
    return json.dumps({"model": {"vocab": pairs}, "added_tokens": added}, ensure_ascii=False)


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
        "openai-whisper, or give the file, or a tokenizer.json of Hugging Face, as "
        "tokenizer_conf.bpe_path"
    )
