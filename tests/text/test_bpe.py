import pickle

import pytest
from sentencepiece import SentencePieceProcessor

from wenet_uio.config import parse_config
from wenet_uio.text.bpe import BpeSplitter, split_ideographs
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece
from wenet_uio.text.tokenizer import build_tokenizer

TEXTS = ["HELLO WORLD", "GO LEFT", "GO RIGHT", "HELLO LEFT", "WORLD RIGHT 你好"] * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("spm") / "upper"
    train_sentencepiece(TEXTS, prefix, SentencepieceOptions(vocab_size=20, model_type="bpe"))
    return f"{prefix}.model"


def test_chinese_characters_are_tokens_and_words_become_pieces(model):
    splitter = BpeSplitter(model)
    tokens = splitter("hello 你好 go")
    assert tokens[tokens.index("你") : tokens.index("你") + 2] == ["你", "好"]
    assert tokens[0].startswith("▁")
    assert splitter.join(tokens) == "HELLO你好 GO"


def test_text_is_converted_to_the_case_of_the_model(tmp_path, model):
    train_sentencepiece(
        [text.lower() for text in TEXTS],
        tmp_path / "lower",
        SentencepieceOptions(vocab_size=20, model_type="bpe"),
    )
    lower = BpeSplitter(str(tmp_path / "lower.model"))
    assert lower.join(lower("go left")) == "go left"
    upper = BpeSplitter(model)
    assert upper.join(upper("go left")) == "GO LEFT"


def test_non_language_symbols_stay_whole(model):
    assert "{NOISE}" in BpeSplitter(model, ("{NOISE}",))("go {noise} left")


def test_a_used_splitter_can_be_pickled_for_worker_processes(model):
    splitter = BpeSplitter(model)
    tokens = splitter("go left")
    assert pickle.loads(pickle.dumps(splitter))("go left") == tokens


def test_a_missing_model_and_another_file_are_refused_by_name(tmp_path):
    with pytest.raises(OSError, match="no such sentencepiece model"):
        BpeSplitter(str(tmp_path / "none.model"))("a")
    (tmp_path / "bad.model").write_text("not a model")
    with pytest.raises(ValueError, match=r"bad\.model: not a sentencepiece model"):
        BpeSplitter(str(tmp_path / "bad.model"))("a")


def test_ideographs_are_single_parts_and_blank_parts_are_dropped():
    assert split_ideographs("你 好it's ok") == ["你", "好", "it's ok"]


def test_pieces_of_a_sentencepiece_tokenizer_have_the_ids_of_the_model(tmp_path, model):
    values = {"tokenizer": "sentencepiece", "tokenizer_conf": {"model_path": model}}
    tokenizer = build_tokenizer(parse_config(values, "test"))
    reference = SentencePieceProcessor(model_file=model)
    for text in ("GO LEFT", "hello 你好", ""):
        assert tokenizer.tokenize(text)[1] == reference.encode(text)
    tokens, ids = tokenizer.tokenize("HELLO WORLD")
    assert tokens == reference.encode("HELLO WORLD", out_type=str)
    assert tokenizer.detokenize(ids) == "HELLO WORLD"
    assert [word for word, _, _ in tokenizer.words(ids)] == ["HELLO", "WORLD"]
    (tmp_path / "symbols").write_text("<unk>\n{NOISE}\n")
    values["tokenizer_conf"]["non_lang_syms_path"] = str(tmp_path / "symbols")
    tokenizer = build_tokenizer(parse_config(values, "test"))
    assert tokenizer.tokenize("GO<unk>")[0][-1] == "<unk>"
    with pytest.raises(
        ValueError, match=f"^non-language symbol '{{NOISE}}' is no piece of {model}"
    ):
        tokenizer.tokenize("{NOISE}")


def test_a_sentencepiece_tokenizer_needs_its_model():
    with pytest.raises(
        ValueError,
        match=r"^tokenizer_conf.model_path is missing: the path of a sentencepiece model$",
    ):
        build_tokenizer(parse_config({"tokenizer": "sentencepiece"}, "test"))
