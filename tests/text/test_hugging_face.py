"""The huggingface tokenizer: a tokenizer.json of any kind."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Json
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from tests.support.models.vocabularies import write_tokenizer_json
from wenet_uio.config import parse_config
from wenet_uio.text.hugging_face import HuggingFaceSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer

TRAINED_ON = ["hello world", "hello there", "你好 世界"] * 3
TEXTS = ["hello world", "it's  3 o'clock", "你好 世界 café ☃ 😀", ""]


def build(path: str | Path, **keys: str) -> Tokenizer:
    values = {"tokenizer": "huggingface", "tokenizer_conf": {"model_path": str(path), **keys}}
    return build_tokenizer(parse_config(values, "test"))


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_tokenizer_json(tmp_path_factory.mktemp("hub") / "tokenizer.json", TRAINED_ON))


def wordpieces(folder: Path) -> Path:
    pieces = ["[UNK]", "[CLS]", "hello", "wo", "##rld", "你", "好", "there"]
    model = Json(
        models.WordPiece({piece: unit for unit, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    model.normalizer = normalizers.BertNormalizer(lowercase=True)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.decoder = decoders.WordPiece()
    model.add_special_tokens(["[CLS]"])
    model.save(str(folder / "tokenizer.json"))
    return folder


def metaspace(folder: Path) -> Path:
    model = Json(models.Unigram())
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    model.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=40, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"]
    )
    model.train_from_iterator(TRAINED_ON, trainer)
    model.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("text", TEXTS)
def test_text_becomes_the_ids_of_the_file_and_the_same_text_again(
    of_bytes: Path, text: str
) -> None:
    tokenizer = build(of_bytes)
    tokens, ids = tokenizer.tokenize(text)
    expected = Json.from_file(str(of_bytes)).encode(text, add_special_tokens=False)
    assert (tokens, ids) == (expected.tokens, expected.ids)
    assert tokenizer.detokenize(ids) == text


def test_words_of_bytes_are_cut_at_spaces_and_ideographs(of_bytes: Path) -> None:
    tokenizer = build(of_bytes)
    _, ids = tokenizer.tokenize("hello worlds 世人a")
    ids.append(tokenizer.symbols["<|endoftext|>"])
    assert [word for word, _, _ in tokenizer.words(ids)] == ["hello", "worlds", "世", "人", "a"]


def test_words_of_wordpieces_are_joined_at_their_marks(tmp_path: Path) -> None:
    tokenizer = build(wordpieces(tmp_path))
    tokens, ids = tokenizer.tokenize("Hello world 你好 there")
    assert tokens == ["hello", "wo", "##rld", "你", "好", "there"]
    assert [word for word, _, _ in tokenizer.words(ids)] == ["hello", "world", "你", "好", "there"]
    assert tokenizer.detokenize([1, *ids]) == "hello world 你 好 there"


def test_pieces_of_a_word_make_the_word_also_when_they_are_put_together(tmp_path: Path) -> None:
    splitter = build(wordpieces(tmp_path)).splitter
    assert splitter.join(["wo##rld"]) == splitter.join(["wo", "##rld"]) == "world"


def test_limits_and_padding_of_a_text_model_do_not_change_labels(tmp_path: Path) -> None:
    model = Json.from_file(str(wordpieces(tmp_path) / "tokenizer.json"))
    model.enable_truncation(2)
    model.enable_padding(length=9)
    model.decoder = None
    model.save(str(tmp_path / "tokenizer.json"))
    tokenizer = build(tmp_path)
    tokens, ids = tokenizer.tokenize("hello there hello")
    assert tokens == ["hello", "there", "hello"]
    assert tokenizer.detokenize(ids) == "hello there hello"


def test_pieces_with_a_sign_of_a_space_make_words(tmp_path: Path) -> None:
    tokenizer = build(metaspace(tmp_path))
    _, ids = tokenizer.tokenize("hello there")
    assert tokenizer.detokenize(ids) == "hello there"
    assert [word for word, _, _ in tokenizer.words(ids)] == ["hello", "there"]


def test_a_folder_stands_for_the_tokenizer_json_in_it(of_bytes: Path) -> None:
    assert build(of_bytes.parent).symbols == build(of_bytes).symbols


def test_non_language_symbols_are_tokens_of_the_file(of_bytes: Path, tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("<|endoftext|>\n{NOISE}\n")
    tokenizer = build(of_bytes, non_lang_syms_path=str(tmp_path / "symbols"))
    assert tokenizer.tokenize("hello<|ENDOFTEXT|>")[0] == ["hello", "<|endoftext|>"]
    with pytest.raises(
        ValueError, match=r"^non-language symbol '{NOISE}' is no token of .*tokenizer.json$"
    ):
        tokenizer.tokenize("{NOISE}")


def test_a_missing_file_another_file_and_a_missing_key_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"tokenizer.json: no such tokenizer.json; transformers writes it"
    ):
        build(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"tokenizer.json: not a tokenizer.json of Hugging Face \("
    ):
        build(tmp_path)
    with pytest.raises(
        ValueError, match=r"^tokenizer_conf.model_path is missing: the path of a tokenizer.json"
    ):
        build("")


def test_a_name_on_the_hub_is_an_error() -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"^openai/whisper-small: no such tokenizer.json; transformers writes it",
    ):
        build("openai/whisper-small")


def test_a_missing_package_is_named(of_bytes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setattr(sys, "prefix", "an environment of the user")
    with pytest.raises(
        ValueError,
        match=r"^this command needs tokenizers: pip install -r requirements/huggingface.txt",
    ):
        build(of_bytes)


def test_a_used_splitter_can_be_pickled_for_worker_processes(of_bytes: Path) -> None:
    splitter = HuggingFaceSplitter(str(of_bytes))
    tokens = splitter("hello")
    assert pickle.loads(pickle.dumps(splitter))("hello") == tokens
