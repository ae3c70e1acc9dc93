"""Tiny vocabularies of byte pairs in the formats of OpenAI and Hugging Face."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

from wenet_uio.text.byte_tokens import byte_of_char


def byte_pairs(words: Iterable[str]) -> list[bytes]:
    """All bytes in GPT-2's order, then the beginnings of the words, each one byte longer than a
    token before it.
    """
    tokens = [bytes([byte]) for byte in byte_of_char().values()]
    for word in words:
        tokens += [word.encode()[:end] for end in range(2, len(word.encode()) + 1)]
    return list(dict.fromkeys(tokens))


def write_tiktoken(path: Path, words: Iterable[str]) -> str:
    """Write a vocabulary as OpenAI's `multilingual.tiktoken`."""
    lines = (
        f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(byte_pairs(words))
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def write_vocab_json(path: Path, words: Iterable[str]) -> str:
    """Write the same vocabulary as Hugging Face's `vocab.json`, which also has <|endoftext|>."""
    char_of = {byte: char for char, byte in byte_of_char().items()}
    tokens = ["".join(char_of[byte] for byte in token) for token in byte_pairs(words)]
    ranks = {token: rank for rank, token in enumerate([*tokens, "<|endoftext|>"])}
    path.write_text(json.dumps(ranks), encoding="utf-8")
    return str(path)


def write_tokenizer_json(
    path: Path, texts: Iterable[str], special: tuple[str, ...] = ("<|endoftext|>",)
) -> str:
    """Train a vocabulary of byte pairs and write it as Hugging Face's `tokenizer.json`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    )
    model.add_special_tokens(list(special))
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(str(path))
    return str(path)
