import unicodedata

import pytest

from wenet_uio.scoring.words import WordRules, script_of


def test_words_are_split_at_spaces_and_upper_cased():
    assert WordRules()(" Hello  world,") == ["HELLO", "WORLD,"]
    assert WordRules(case_sensitive=True)("Hello") == ["Hello"]


def test_automatic_units_are_ideographs_and_latin_runs():
    rules = WordRules("auto")
    assert rules("我爱 it's ok，café。北京2008年") == [
        "我",
        "爱",
        "IT'S",
        "OK",
        "CAFÉ",
        "北",
        "京",
        "2008",
        "年",
    ]


def test_characters_are_those_of_every_script_with_the_spaces_between_words():
    rules = WordRules("char", ignored=frozenset({"UH"}))
    assert rules(" Hé  uh <noise> we") == ["H", "É", "▁", "W", "E"]
    assert rules("これ は ок да") == ["こ", "れ", "は", "О", "К", "▁", "Д", "А"]
    assert rules("我 爱 go 你") == ["我", "爱", "G", "O", "你"]
    assert rules(" ") == []


@pytest.mark.parametrize("unit", ["word", "char", "auto"])
def test_a_letter_and_its_accent_may_be_one_code_point_or_two(unit):
    text = "één Übung か\u3099"
    apart = unicodedata.normalize("NFD", text)
    rules = WordRules(unit)
    assert apart != unicodedata.normalize("NFC", text)
    assert rules(apart) == rules(unicodedata.normalize("NFC", text))


def test_tags_are_removed_by_default():
    assert WordRules()("<unk> a<noise>b") == ["AB"]
    assert WordRules("auto")("<unk><noise>我") == ["我"]
    assert WordRules("auto", remove_tags=False)("<unk><noise>我") == ["<UNK>", "<NOISE>", "我"]


def test_ignored_words_are_removed():
    assert WordRules(ignored=frozenset({"UH"}))("uh yes Uh") == ["YES"]


@pytest.mark.parametrize(
    ("word", "script"),
    [
        *[
            ("我", "Mandarin"),
            ("IT'S", "English"),
            ("É", "English"),
            ("2008", "Number"),
            ("は", "Japanese"),
        ],
        *[("A1", "Other"), ("我A", "Other"), ("-", "Other"), ("한", "Other")],
    ],
)
def test_script_of_a_word(word, script):
    assert script_of(word) == script
