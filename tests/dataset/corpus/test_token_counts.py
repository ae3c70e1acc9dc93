from pathlib import Path

from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.corpus import token_counts
from wenet_uio.dataset.corpus.mixture import Passes
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
        assert not counted.is_remote
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


def test_texts_of_equal_length_are_counted_again_and_change_the_digest_of_the_counts(make_lists):
    path = Path(make_lists(6)["raw"])
    before = open_corpus(str(path), "raw", tokenizer=WORDS)
    path.write_text(path.read_text().replace('"abc"', '"a c"'))
    now = open_corpus(str(path), "raw", tokenizer=WORDS)
    assert (lengths(before), lengths(now)) == ([1] * 6, [1, 1, 2] * 2)
    assert before.digest == now.digest
    assert before.counts_digest != now.counts_digest
    assert open_list(str(path), "raw").counts_digest == ""


def test_a_mixture_and_its_passes_have_a_digest_of_the_counts_of_all_sources(make_lists):
    paths = make_lists(6)
    sources = [{"type": kind, "data_list": path} for kind, path in paths.items()]
    conf = MixtureConf.model_validate(sources)
    counted = open_corpus(conf, "raw", tokenizer=WORDS)
    assert counted.counts_digest
    assert Passes(counted).corpus_of(0).counts_digest == counted.counts_digest
    assert open_corpus(conf, "raw").counts_digest == ""


def test_characters_that_are_tokens_are_not_counted(make_lists, tmp_path):
    open_corpus(make_lists(3)["raw"], "raw", tokenizer=Tokenizer(CharSplitter(), UNITS))
    assert not list(tmp_path.glob("*.tokens-*"))
