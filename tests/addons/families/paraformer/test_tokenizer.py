"""The tokenizer of Paraformer."""

from __future__ import annotations

from pathlib import Path

import pytest

from wenet_uio.addons.families.paraformer.tokenizer import SegDictSplitter
from wenet_uio.config import load_config
from wenet_uio.text.labels import Tokenizer
from wenet_uio.text.tokenizer import build_splitter, build_tokenizer


@pytest.fixture
def tokenizer(golden2: Path) -> Tokenizer:
    """The tokenizer of WeNet's reference model, whose dictionary has `hello he@@ llo`, a and b."""
    return build_tokenizer(load_config(golden2 / "paraformer/train.yaml", of_model=True))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hello 天地a", ["he@@", "llo", "天", "地", "a"]),
        ("  hello天hello ", ["he@@", "llo", "天", "he@@", "llo"]),
        ("b xyz", ["b", "xyz"]),
        ("", []),
    ],
)
def test_words_are_cut_by_the_dictionary_and_chinese_into_characters(
    tokenizer: Tokenizer, text: str, tokens: list[str]
) -> None:
    assert tokenizer.tokenize(text)[0] == tokens


def test_a_word_outside_of_the_dictionary_is_one_token_or_unknown(tokenizer: Tokenizer) -> None:
    assert tokenizer.tokenize("a xyz")[1] == [3, 47]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["he@@", "llo", "a"], "hello a"),
        (["天", "地"], "天地"),
        (["天", "he@@", "llo", "b", "地", "1"], "天hello b地1"),
        (["a", "1", "<unk>", "b", "<unk>"], "a1<unk>b <unk>"),
        (["<sos>", "it's", "a", "<eos>", "<blank>"], "it's a"),
        (["a", "he@@"], "a he"),
        ([], ""),
    ],
)
def test_pieces_are_joined_to_words_with_spaces_between_words_of_letters(
    tokens: list[str], text: str
) -> None:
    assert SegDictSplitter("unused").join(tokens) == text


def test_pieces_belong_to_one_word(tokenizer: Tokenizer) -> None:
    ids = tokenizer.tokenize("hello a 天")[1]
    assert tokenizer.words(ids) == [("hello", 0, 2), ("a", 2, 3), ("天", 3, 4)]


def test_the_dictionary_counts_for_the_digest_and_its_path_does_not(tmp_path: Path) -> None:
    digests = []
    for name, line in (("a", "ab a@@ b"), ("b", "ab a@@ b"), ("c", "ab ab")):
        (tmp_path / name).write_text(f"{line}\n\n")
        digests.append(Tokenizer(SegDictSplitter(str(tmp_path / name)), {"a": 0}).digest)
    assert digests[0] == digests[1] != digests[2]


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "seg_dict").write_text("ab a@@ b\nword\n")
    with pytest.raises(
        ValueError, match=r"seg_dict:2: expected `word piece piece ...`, found 'word'"
    ):
        SegDictSplitter(str(tmp_path / "seg_dict"))("ab")
    with pytest.raises(FileNotFoundError, match="absent"):
        SegDictSplitter(str(tmp_path / "absent"))("ab")
    with pytest.raises(ValueError, match="tokenizer paraformer needs the path of a dictionary"):
        build_splitter("paraformer")
