from wenet_uio.dataset.corpus import token_counts
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.open import open_corpus
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

UNITS = {"<blank>": 0, "<unk>": 1, "a": 2}
WORDS = Tokenizer(CharSplitter((), split_with_space=True), UNITS)


def lengths(corpus):
    return [int(n) for shard in range(corpus.num_shards) for n in corpus.rows(shard).text_length]


def test_tokens_are_counted_once_and_kept_beside_the_list(make_lists, monkeypatch):
    for kind, path in make_lists(12, per_shard=5).items():
        counted = open_corpus(path, kind, tokenizer=WORDS)
        assert lengths(open_list(path, kind)) == [1, 2, 3] * 4
        assert lengths(counted) == [1] * 12
        assert [int(column.max()) for column in counted.extremes(slice(None))[2:]] == [1, 1]
        with monkeypatch.context() as patch:
            patch.setattr(token_counts, "_count", None)  # calling it again would fail
            assert lengths(open_corpus(path, kind, tokenizer=WORDS)) == [1] * 12


def test_another_tokenizer_and_a_changed_list_are_counted_again(make_lists):
    path = make_lists(6)["raw"]
    first = open_corpus(path, "raw", tokenizer=WORDS)
    other = Tokenizer(CharSplitter(("{bc}",), split_with_space=True), UNITS)
    assert first.digest != open_corpus(path, "raw", tokenizer=other).digest
    with open(path) as file:
        lines = file.readlines()
    with open(path, "w") as file:
        file.writelines(line.replace('"abc"', '"a b c"') for line in lines)
    assert lengths(open_corpus(path, "raw", tokenizer=WORDS)) == [1, 1, 3] * 2


def test_characters_that_are_tokens_are_not_counted(make_lists, tmp_path):
    open_corpus(make_lists(3)["raw"], "raw", tokenizer=Tokenizer(CharSplitter(), UNITS))
    assert not list(tmp_path.glob("*.tokens-*"))
