import subprocess
import sys

import pytest

from tests.support.models.vocabularies import write_tiktoken
from wenet_uio.config import parse_config
from wenet_uio.search.context_graph import tokenize_phrases
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_tokenizer

SYMBOLS = {"<blank>": 0, "<unk>": 1, "a": 2, "b": 3, "▁": 4, "<sos/eos>": 5}


def config(kind, *, output_dim=None, **conf):
    return parse_config(
        {"tokenizer": kind, "tokenizer_conf": conf, "output_dim": output_dim}, "test"
    )


@pytest.fixture
def units(tmp_path):
    path = tmp_path / "units.txt"
    path.write_text(
        "".join(f"{symbol} {unit}\n" for symbol, unit in SYMBOLS.items()), encoding="utf-8"
    )
    return str(path)


def test_text_becomes_ids_and_ids_become_text(units):
    tokenizer = build_tokenizer(config("char", symbol_table_path=units))
    assert tokenizer.tokenize("ab a") == (["a", "b", "▁", "a"], [2, 3, 4, 2])
    assert tokenizer.detokenize([2, 3, 4, 2]) == "ab a"
    assert tokenizer.vocab_size == 6
    assert tokenizer.symbols == SYMBOLS
    assert tokenizer.exact_length


def test_an_unknown_token_becomes_unk(units):
    assert build_tokenizer(config("char", symbol_table_path=units)).tokenize("aż")[1] == [2, 1]


def test_an_unknown_token_without_unk_is_an_error():
    with pytest.raises(ValueError, match="'c' of text 'abc' is not a unit"):
        Tokenizer(CharSplitter(), {"a": 0, "b": 1}).tokenize("abc")


def test_an_id_outside_the_vocabulary_is_an_error(units):
    with pytest.raises(ValueError, match="id 6 has no symbol"):
        build_tokenizer(config("char", symbol_table_path=units)).detokenize([2, 6])


def test_non_language_symbols_come_from_the_file(tmp_path, units):
    path = tmp_path / "syms.txt"
    path.write_text("{NOISE}\n", encoding="utf-8")
    tokenizer = build_tokenizer(
        config("char", symbol_table_path=units, non_lang_syms_path=str(path))
    )
    assert tokenizer.tokenize("a{NOISE}b")[0] == ["a", "{NOISE}", "b"]


def test_more_units_than_the_model_has_outputs_are_an_error(units):
    assert build_tokenizer(config("char", symbol_table_path=units, output_dim=8)).vocab_size == 6
    with pytest.raises(ValueError, match=f"output_dim 5 has no room for the 6 units of {units}"):
        build_tokenizer(config("char", symbol_table_path=units, output_dim=5))


def test_missing_paths_are_named(units):
    with pytest.raises(ValueError, match="symbol_table_path"):
        build_tokenizer(config("char"))
    with pytest.raises(ValueError, match="bpe_path"):
        build_tokenizer(config("bpe", symbol_table_path=units))
    with pytest.raises(
        OSError,
        match=r"nowhere/units.txt: no such units file; copy that of the training, .*make_dict",
    ):
        build_tokenizer(config("char", symbol_table_path="nowhere/units.txt"))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ("a▁bc", [("a", 0, 1), ("bc", 1, 4)]),
        ("a▁▁b▁", [("a", 0, 1), ("b", 2, 4)]),
        ("我b你c", [("我", 0, 1), ("b", 1, 2), ("你", 2, 3), ("c", 3, 4)]),
        ("", []),
    ],
)
def test_words_are_cut_at_spaces_and_around_ideographs(tokens, expected):
    tokenizer = Tokenizer(CharSplitter(), {token: unit for unit, token in enumerate("▁abc我你")})
    assert tokenizer.words([tokenizer.symbols[token] for token in tokens]) == expected


def test_word_tokens_and_symbols_are_words_of_their_own():
    units = {"ab": 0, "c": 1, "{N}": 2}
    assert Tokenizer(CharSplitter(split_with_space=True), units).words([0, 1]) == [
        ("ab", 0, 1),
        ("c", 1, 2),
    ]
    assert Tokenizer(CharSplitter(("{N}",)), units).words([1, 2, 1]) == [
        ("c", 0, 1),
        ("{N}", 1, 2),
        ("c", 2, 3),
    ]


def test_a_phrase_is_spelt_as_at_the_start_of_a_text_and_as_after_a_space(tmp_path):
    path = write_tiktoken(tmp_path / "tiny.tiktoken", [" left", "你好"])
    values = {"is_multilingual": True, "num_languages": 99, "bpe_path": path}
    tokenizer = build_tokenizer(config("whisper", **values))
    assert tokenizer.spellings("left") == [["l", "e", "f", "t"], ["▁left"]]
    assert Tokenizer(CharSplitter(), SYMBOLS).spellings("ab") == [["a", "b"]]
    phrases, unknown = tokenize_phrases(["left\n", "\n"], tokenizer)
    assert [phrase.tokens for phrase in phrases] == [
        [tokenizer.symbols[letter] for letter in "left"],
        [tokenizer.symbols["▁left"]],
    ]
    assert unknown == []


def test_ids_become_text_without_the_packages_that_cut_text(tmp_path):
    path = write_tiktoken(tmp_path / "tiny.tiktoken", [" left"])
    script = f"""
import sys
from wenet_uio.config import parse_config
from wenet_uio.text.tokenizer import build_tokenizer
conf = {{"is_multilingual": True, "num_languages": 99, "bpe_path": {path!r}}}
tokenizer = build_tokenizer(parse_config({{"tokenizer": "whisper", "tokenizer_conf": conf}}, "test"))
assert tokenizer.detokenize([tokenizer.symbols["▁left"]]) == "left"
assert not {{"torch", "tiktoken", "tokenizers", "sentencepiece", "transformers", "whisper"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_package_that_cuts_text_into_byte_pairs_is_named_if_it_is_missing(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setattr(sys, "prefix", "an environment of the user")
    values = {"num_languages": 99, "bpe_path": write_tiktoken(tmp_path / "a.tiktoken", [" a"])}
    tokenizer = build_tokenizer(config("whisper", is_multilingual=True, **values))
    with pytest.raises(
        ValueError, match=r"^this command needs tiktoken: pip install -r requirements/whisper.txt"
    ):
        tokenizer.tokenize("a")
