"""The whisper tokenizer: byte pairs of OpenAI's vocabularies with Whisper's special tokens."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.vocabularies import byte_pairs, write_tiktoken, write_vocab_json
from wenet_uio.addons.families.whisper.tokenizer import (
    TOKENS,
    WhisperSplitter,
)
from wenet_uio.addons.families.whisper.tokens import special_tokens
from wenet_uio.addons.families.whisper.vocabulary_file import (
    installed_vocabulary,
    read_vocabulary,
)
from wenet_uio.config import parse_config
from wenet_uio.config.wenet import to_wenet
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.special_ids import special_ids
from wenet_uio.text.tokenizer import build_tokenizer

WORDS = [" hello", " world", "你", "你好", " it"]
TEXTS = [
    "hello world",
    "it's 3 o'clock,  don't",
    "你好 世界 café ☃ 😀",
    "<|en|> is text",
    "a\tb ▁ <0x41>",
    "",
]


def config(path: str | None, num_languages: int = 99, **keys: Any) -> Any:
    conf = {"is_multilingual": True, "num_languages": num_languages, "bpe_path": path, **keys}
    return whisper_config(conf)


def whisper_config(conf: dict[str, Any]) -> Any:
    return parse_config({"tokenizer": "whisper", "tokenizer_conf": conf}, "test")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiktoken(tmp_path_factory.mktemp("openai") / "tiny.tiktoken", WORDS)


@pytest.fixture(scope="module")
def tokenizer(vocabulary: str) -> Tokenizer:
    return build_tokenizer(config(vocabulary))


@pytest.mark.parametrize("text", TEXTS)
def test_text_becomes_ids_and_the_same_text_again(tokenizer: Tokenizer, text: str) -> None:
    tokens, ids = tokenizer.tokenize(text)
    assert tokenizer.detokenize(ids) == text
    assert tokens == [tokenizer.symbol(unit) for unit in ids]
    assert not set(tokens) & set(TOKENS.values())


def test_pairs_of_low_rank_are_joined_first(tokenizer: Tokenizer) -> None:
    tokens, ids = tokenizer.tokenize("say hello 你好")
    assert tokens == ["s", "a", "y", "▁hello", "▁", "你好"]
    assert ids[3] == byte_pairs(WORDS).index(b" hello")


@pytest.mark.parametrize("num_languages", [99, 100])
def test_special_tokens_follow_the_text_as_in_openais_models(
    vocabulary: str, num_languages: int
) -> None:
    symbols = build_tokenizer(config(vocabulary, num_languages)).symbols
    size = len(byte_pairs(WORDS))
    assert {name: symbols[token] for name, token in TOKENS.items()} == special_tokens(
        size, num_languages
    )
    assert ("<|yue|>" in symbols) == (num_languages == 100)
    assert (symbols["<|en|>"], symbols["<|30.00|>"]) == (size + 2, len(symbols) - 1)
    assert list(symbols.values()) == list(range(size + 2 + num_languages + 6 + 1501))


def test_the_text_has_no_special_tokens_and_no_halves_of_characters(tokenizer: Tokenizer) -> None:
    symbols = tokenizer.symbols
    ids = [
        symbols[name]
        for name in ("<|startoftranscript|>", "<|en|>", "▁hello", "<|1.00|>", "<0xE4>")
    ]
    assert tokenizer.detokenize([*ids, symbols["<|endoftext|>"]]) == "hello\ufffd"


def test_words_are_cut_at_spaces_ideographs_and_special_tokens(tokenizer: Tokenizer) -> None:
    _, ids = tokenizer.tokenize("hello worlds 你好a 世")
    ids.insert(0, tokenizer.symbols["<|0.00|>"])
    assert [word for word, _, _ in tokenizer.words(ids)] == ["hello", "worlds", "你好", "a", "世"]


def test_characters_of_several_tokens_are_words_where_a_script_writes_no_spaces(
    tokenizer: Tokenizer,
) -> None:
    _, ids = tokenizer.tokenize("スマホ กำลัง ok")
    words = tokenizer.words(ids)
    assert [word for word, _, _ in words] == ["ス", "マ", "ホ", "กำ", "ลั", "ง", "ok"]
    assert [first for _, first, _ in words[:3]] == [0, 3, 6]  # a kana is three bytes


def test_non_language_symbols_are_special_tokens(vocabulary: str, tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("<|nospeech|>\n{NOISE}\n")
    tokenizer = build_tokenizer(config(vocabulary, non_lang_syms_path=str(tmp_path / "symbols")))
    assert tokenizer.tokenize("it<|NOSPEECH|>")[0] == ["i", "t", "<|nospeech|>"]
    with pytest.raises(
        ValueError, match=r"^non-language symbol '{NOISE}' is no special token of Whisper"
    ):
        tokenizer.tokenize("a {noise}")


def test_a_vocabulary_of_hugging_face_is_the_same(vocabulary: str, tmp_path: Path) -> None:
    path = write_vocab_json(tmp_path / "vocab.json", WORDS)
    assert read_vocabulary(path).ranks == read_vocabulary(vocabulary).ranks
    assert list(read_vocabulary(path).ranks) == byte_pairs(WORDS)


@pytest.mark.parametrize(
    "content",
    ["", "aGVsbG8= x\n", "{1", '{"a": 0}', '{"世": 0}', "IQ== 1\n", "[]", '{"a": null}', "\xff"],
)
def test_another_file_is_refused_by_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.tiktoken"
    path.write_bytes(content.encode("latin-1" if content == "\xff" else "utf-8"))
    with pytest.raises(
        ValueError, match=r"bad.tiktoken: (expected `base64 id` lines|the ids are not)"
    ):
        read_vocabulary(path)


def test_a_missing_file_and_missing_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"nowhere: no such vocabulary \(multilingual.tiktoken"
    ):
        build_tokenizer(config(str(tmp_path / "nowhere")))
    with pytest.raises(
        ValueError,
        match=r"^tokenizer whisper needs tokenizer_conf.is_multilingual: .*num_languages",
    ):
        build_tokenizer(parse_config({"tokenizer": "whisper"}, "test"))
    with pytest.raises(
        ValueError, match=r"^tokenizer_conf.num_languages 101: Whisper has at most 100$"
    ):
        build_tokenizer(config(None, 101))


def test_a_model_that_knows_english_only_needs_no_number_of_languages(vocabulary: str) -> None:
    english = {"is_multilingual": False, "bpe_path": vocabulary}
    config = whisper_config(english)
    symbols = build_tokenizer(config).symbols
    assert special_ids(config.tokenizer_conf, symbols, len(symbols)).items() >= (
        special_tokens(len(byte_pairs(WORDS)), 99).items()
    )
    assert to_wenet(config)["tokenizer_conf"]["num_languages"] == 99  # WeNet needs the key
    for count in (1, 100):
        with pytest.raises(ValueError, match=rf"num_languages {count}: a Whisper that knows Eng"):
            build_tokenizer(whisper_config(english | {"num_languages": count}))


def test_without_a_path_the_vocabulary_of_the_installed_package_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "whisper").mkdir()
    (tmp_path / "whisper/__init__.py").write_text("raise ImportError('numba')")
    with pytest.raises(
        ValueError,
        match=r"^tokenizer whisper needs multilingual.tiktoken of the package openai-whi",
    ):
        build_tokenizer(config(None))
    expected = write_tiktoken(tmp_path / "whisper/assets/gpt2.tiktoken", WORDS)
    assert installed_vocabulary(multilingual=False) == expected
    assert build_tokenizer(config(None, is_multilingual=False)).tokenize("it")[0] == ["i", "t"]


def test_a_missing_package_is_named_when_text_is_cut_and_not_before(
    vocabulary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # an environment of the user's
    tokenizer = build_tokenizer(config(vocabulary))
    assert tokenizer.detokenize([tokenizer.symbols["▁hello"]]) == "hello"
    with pytest.raises(ValueError, match=r"needs tiktoken: pip install -r requirements/whisper"):
        tokenizer.tokenize("hello")


def test_a_used_splitter_can_be_pickled_for_worker_processes(vocabulary: str) -> None:
    splitter = WhisperSplitter(vocabulary, 99)
    tokens = splitter("hello 世界")
    assert pickle.loads(pickle.dumps(splitter))("hello 世界") == tokens


def test_the_digest_changes_with_the_vocabulary_and_not_with_its_place(
    vocabulary: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(Path(vocabulary).read_bytes())
    digest = build_tokenizer(config(vocabulary)).digest
    assert build_tokenizer(config(str(copy))).digest == digest
    assert build_tokenizer(config(write_tiktoken(copy, [" bye"]))).digest != digest
    assert build_tokenizer(config(vocabulary, 100)).digest != digest
