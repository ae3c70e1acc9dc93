"""Words of scripts that write no space between words."""

import pytest

from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer, has_unspaced, starts_of_characters


def words(text):
    """The words of a text whose tokens are its characters."""
    tokens = CharSplitter()(text)
    symbols = {token: unit for unit, token in enumerate(dict.fromkeys(tokens))}
    found = Tokenizer(CharSplitter(), symbols).words([symbols[token] for token in tokens])
    covered = [unit for _, first, last in found for unit in range(first, last)]
    assert covered == sorted(set(covered))
    return [word for word, _, _ in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("きょうはコーヒー", ["きょ", "う", "は", "コー", "ヒー"]),
        ("がっこう です。", ["がっ", "こ", "う", "で", "す。"]),
        ("ｺｰﾋﾟｰ", ["ｺｰ", "ﾋﾟｰ"]),
        ("สวัสดีครับ", ["ส", "วั", "ส", "ดี", "ค", "รั", "บ"]),
        ("เก่งมาก", ["เก่", "ง", "มา", "ก"]),
        ("ສະບາຍດີ", ["ສະ", "ບາ", "ຍ", "ດີ"]),
        ("ជំរាបសួរ", ["ជំ", "រា", "ប", "សួ", "រ"]),
        ("ខ្ញុំ", ["ខ្ញុំ"]),
        ("မင်္ဂလာပါ", ["မ", "င်္ဂ", "လာ", "ပါ"]),
        ("བོད་ཡིག", ["བོ", "ད་", "ཡི", "ག"]),
    ],
)
def test_characters_are_words_where_a_script_writes_no_spaces(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("スマホapp2つ", ["ス", "マ", "ホ", "app2", "つ"]),
        ("this is ไทย", ["this", "is", "ไท", "ย"]),
        ("「はい」と", ["「は", "い」", "と"]),
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("안녕 하세요", ["안녕", "하세요"]),
        ("don't stop", ["don't", "stop"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
    ],
)
def test_other_scripts_and_punctuation_beside_them_stay_whole(text, expected):
    assert words(text) == expected


def test_a_token_of_several_characters_stays_whole():
    symbols = {"こんにちは": 0, "世界": 1, "の": 2}
    tokenizer = Tokenizer(CharSplitter(), symbols)
    assert tokenizer.words([0, 2, 1]) == [("こんにちは", 0, 1), ("の", 1, 2), ("世界", 2, 3)]


def test_a_part_without_text_starts_no_character():
    assert starts_of_characters(["", "は", "", "い", ""]) == [0, 3]
    assert starts_of_characters([]) == []
    assert not has_unspaced("café, привет")
