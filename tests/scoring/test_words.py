import pytest

from wenet_uio.scoring.words import WordRules, script_of


def test_words_are_split_at_spaces_and_upper_cased():
    assert WordRules()(" Hello  world,") == ["HELLO", "WORLD,"]
    assert WordRules(case_sensitive=True)("Hello") == ["Hello"]


def test_by_character_ideographs_are_words_and_latin_runs_stay_whole():
    rules = WordRules(by_character=True)
    assert rules("我爱 it's ok，café。北京2008年") == ["我", "爱", "IT'S", "OK", "CAFÉ", "北", "京", "2008", "年"]


def test_tags_are_removed_by_default():
    assert WordRules()("<unk> a<noise>b") == ["AB"]
    assert WordRules(by_character=True)("<unk><noise>我") == ["我"]
    assert WordRules(by_character=True, remove_tags=False)("<unk><noise>我") == ["<UNK>", "<NOISE>", "我"]


def test_ignored_words_are_removed():
    assert WordRules(ignored=frozenset({"UH"}))("uh yes Uh") == ["YES"]


@pytest.mark.parametrize(
    ("word", "script"),
    [
        *[("我", "Mandarin"), ("IT'S", "English"), ("É", "English"), ("2008", "Number"), ("は", "Japanese")],
        *[("A1", "Other"), ("我A", "Other"), ("-", "Other"), ("한", "Other")],
    ],
)
def test_script_of_a_word(word, script):
    assert script_of(word) == script
