"""NeMo's folders of tokenizers: sentencepiece models, word pieces, one for each language."""

import pytest
import yaml

from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.run_config import read_config

PIECES = ["[UNK]", "[PAD]", "the", "cat", "Sat", "##s", "##er", "!"]


@pytest.fixture
def folders(tmp_path):
    for name, words in (("en", "abc cab bac"), ("es", "xyz zyx yxz")):
        (tmp_path / name).mkdir()
        options = SentencepieceOptions(8)
        train_sentencepiece(words.split() * 9, tmp_path / name / "tokenizer", options)
        (tmp_path / name / "vocab.txt").write_text("not read of a folder of type bpe\n")
    (tmp_path / "wpe").mkdir()
    (tmp_path / "wpe/vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    return tmp_path


def read(folder, section, overrides=()):
    (folder / "t.yaml").write_text(yaml.safe_dump({"model": {"tokenizer": section}}))
    return read_config(folder / "t.yaml", overrides)


def test_the_folder_of_a_sentencepiece_model_gives_its_ids_and_a_blank_after_them(folders):
    config, tokenizer = read(folders, {"type": "bpe", "dir": "en"})
    assert config.tokenizer_conf.model_path == str(folders / "en/tokenizer.model")
    assert (config.ctc_conf.ctc_blank_id, config.output_dim) == (8, 10)
    tokens, ids = tokenizer.tokenize("abc z")
    assert tokenizer.symbols["<unk>"] == 0 in ids
    assert tokens[-1] == "<unk>"


def test_word_pieces_are_cut_as_bert_with_case_cuts_them(folders):
    config, tokenizer = read(folders, {"type": "wpe", "dir": "wpe"})
    assert (config.ctc_conf.ctc_blank_id, config.output_dim) == (8, 10)
    assert tokenizer.tokenize("the cats Sat! sat")[1] == [2, 3, 5, 4, 7, 0]
    assert tokenizer.detokenize(tokenizer.tokenize("the cats Sat!")[1]) == "the cats Sat!"


@pytest.mark.parametrize(("type_", "text"), [("bpe", "abc cab"), ("wpe", "the cats")])
def test_the_ids_that_a_model_adds_after_the_tokens_have_no_text(folders, type_, text):
    """A decoder has outputs for them, and says them while it has learnt little."""
    folder = {"bpe": "en", "wpe": "wpe"}[type_]
    config, tokenizer = read(folders, {"type": type_, "dir": folder})
    blank, end = config.ctc_conf.ctc_blank_id, tokenizer.vocab_size + 1
    ids = tokenizer.tokenize(text)[1]
    assert tokenizer.detokenize([blank, *ids, blank, end]) == text
    words = [word for word, _, _ in tokenizer.words([blank, *ids, blank])]
    assert words == text.split()
    assert tokenizer.symbol(blank) == "<blank>"
    from wenet_uio.addons.runtimes.sherpa import tokens_file

    last_lines = tokens_file(tokenizer, blank).splitlines()[-2:]
    assert last_lines == [f"<blank> {blank}", f"<sos/eos> {end}"]
    with pytest.raises(ValueError, match="id 10 has no symbol"):
        tokenizer.detokenize([end + 1])


def test_word_pieces_without_the_unknown_one_are_refused(folders):
    (folders / "wpe/vocab.txt").write_text("the\ncat\n")
    with pytest.raises(ValueError, match=r"vocab.txt: .*\[UNK\] is missing"):
        read(folders, {"type": "wpe", "dir": "wpe"})


def test_an_aggregate_has_the_ids_of_its_languages_one_after_the_other(folders):
    langs = {name: {"type": "bpe", "dir": name} for name in ("en", "es")}
    config, tokenizer = read(folders, {"type": "agg", "langs": langs})
    assert (config.ctc_conf.ctc_blank_id, config.output_dim) == (16, 18)
    spanish = tokenizer.of({"lang": "es"}).tokenize("xyz")[1]
    assert min(spanish) >= 8


def test_the_folder_of_an_override_is_relative_to_the_working_directory(folders, monkeypatch):
    (folders / "run/en").mkdir(parents=True)
    monkeypatch.chdir(folders / "run")
    for name in ("tokenizer.model", "tokenizer.vocab"):
        (folders / "run/en" / name).write_bytes((folders / "es" / name).read_bytes())
    config, _ = read(folders, {"type": "bpe", "dir": "x"}, ["++model.tokenizer.dir=en"])
    assert config.tokenizer_conf.model_path == str(folders / "run/en/tokenizer.model")
    assert build_tokenizer(config).tokenize("x")[1][-1] != 0
