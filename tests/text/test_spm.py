import pytest

from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece

TEXTS = ["HELLO WORLD", "GO LEFT", "GO RIGHT", "HELLO LEFT", "WORLD RIGHT 你好"] * 4


@pytest.mark.parametrize(("model_type", "size"), [("unigram", 15), ("bpe", 24)])
def test_the_same_text_gives_the_same_model(tmp_path, model_type, size):
    for name in ("one", "two"):
        train_sentencepiece(
            TEXTS, tmp_path / name, SentencepieceOptions(vocab_size=size, model_type=model_type)
        )
    assert (tmp_path / "one.model").read_bytes() == (tmp_path / "two.model").read_bytes()
    vocabulary = (tmp_path / "one.vocab").read_text(encoding="utf-8").splitlines()
    assert len(vocabulary) == size
    assert not any("你" in line for line in vocabulary)


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        (TEXTS, 5000, r"vocab_size 5000 is too large for this text: at most \d+$"),
        (TEXTS, 4, "vocab_size 4 is too small: the characters of the text alone need"),
        (["你好", " "], 10, "nothing to train"),
    ],
)
def test_an_impossible_vocab_size_gives_one_line_of_error_and_no_file(
    tmp_path, texts, size, message
):
    with pytest.raises(ValueError, match=message) as caught:
        train_sentencepiece(texts, tmp_path / "m", SentencepieceOptions(vocab_size=size))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_non_language_symbols_do_not_change_a_model(tmp_path):
    train_sentencepiece(TEXTS, tmp_path / "plain", SentencepieceOptions(vocab_size=15))
    marked = [f"<NOISE> {text} <laughter>" for text in TEXTS]
    train_sentencepiece(
        marked,
        tmp_path / "marked",
        SentencepieceOptions(vocab_size=15, non_lang_syms=("<NOISE>", "<LAUGHTER>")),
    )
    assert (tmp_path / "marked.model").read_bytes() == (tmp_path / "plain.model").read_bytes()
