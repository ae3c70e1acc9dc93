"""Special tokens and blank of vocabularies of Whisper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.models.vocabularies import write_tiktoken, write_tokenizer_json
from wenet_uio.addons.families.whisper.tokenizer import TOKENS
from wenet_uio.addons.families.whisper.tokens import special_tokens
from wenet_uio.config import Config, parse_config
from wenet_uio.text.special_ids import blank_id, special_ids
from wenet_uio.text.tokenizer import build_tokenizer, files_of


def whisper(folder: Path, **keys: Any) -> Config:
    path = write_tiktoken(folder / "tiny.tiktoken", [" it"])
    conf = {"is_multilingual": True, "num_languages": 99, "bpe_path": path, **keys}
    return parse_config({"tokenizer": "whisper", "tokenizer_conf": conf}, "test")


def test_a_vocabulary_of_whisper_gives_the_tokens_of_wenets_config_and_no_speech_as_blank(
    tmp_path: Path,
) -> None:
    config = whisper(tmp_path)
    symbols = build_tokenizer(config).symbols
    text = symbols["<|endoftext|>"]
    found = special_ids(config.tokenizer_conf, symbols, len(symbols))
    assert found == {**special_tokens(text, 99), "<sos>": text + 1, "<eos>": text}
    assert blank_id(config, symbols) == found["no_speech"]
    given = config.model_copy(
        update={"ctc_conf": parse_config({"ctc_conf": {"ctc_blank_id": 7}}, "test").ctc_conf}
    )
    assert blank_id(given, symbols) == 7


def test_special_tokens_of_another_number_of_languages_are_refused(tmp_path: Path) -> None:
    config = whisper(tmp_path, num_languages=100)
    symbols = build_tokenizer(config).symbols
    text = symbols["<|endoftext|>"]
    right = whisper(
        tmp_path, num_languages=100, special_tokens={"mine": 5, **special_tokens(text, 100)}
    )
    assert special_ids(right.tokenizer_conf, symbols, len(symbols))["mine"] == 5
    wrong = whisper(tmp_path, num_languages=100, special_tokens={"transcribe": text + 102})
    with pytest.raises(
        ValueError, match=r"special_tokens.transcribe is 360, but 361 in the vocabulary: remove sp"
    ):
        special_ids(wrong.tokenizer_conf, symbols, len(symbols))


def test_whispers_tokens_in_a_tokenizer_of_hugging_face_are_found(tmp_path: Path) -> None:
    path = write_tokenizer_json(tmp_path / "tokenizer.json", ["it"], tuple(TOKENS.values()))
    config = parse_config(
        {"tokenizer": "huggingface", "tokenizer_conf": {"model_path": str(tmp_path)}}, "test"
    )
    symbols = build_tokenizer(config).symbols
    found = special_ids(config.tokenizer_conf, symbols, len(symbols))
    assert {name: found[name] for name in TOKENS} == {
        name: symbols[token] for name, token in TOKENS.items()
    }
    assert files_of(config) == {"model_path": path}


def test_older_tokenizers_of_hugging_face_have_another_name_for_no_speech_and_no_timestamps(
    tmp_path: Path,
) -> None:
    names = [
        token for name, token in TOKENS.items() if name not in ("no_speech", "timestamp_begin")
    ]
    path = write_tokenizer_json(
        tmp_path / "tokenizer.json", ["it"], (*names[:-1], "<|nocaptions|>", names[-1])
    )
    config = parse_config(
        {"tokenizer": "huggingface", "tokenizer_conf": {"model_path": path}}, "test"
    )
    symbols = build_tokenizer(config).symbols
    found = special_ids(config.tokenizer_conf, symbols, len(symbols))
    assert (found["no_speech"], found["timestamp_begin"]) == (
        symbols["<|nocaptions|>"],
        len(symbols),
    )
    assert blank_id(config, symbols) == found["no_speech"]
