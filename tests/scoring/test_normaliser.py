import sys
import unicodedata

import jiwer
import pytest
from whisper_normalization import BasicTextNormalizer, EnglishTextNormalizer

from tests.support.random_texts import random_pairs
from wenet_uio.scoring.normaliser import load_normaliser, normaliser_for
from wenet_uio.scoring.wer import Counts, align


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Um, I won't pay $20 million for the [cough] GREY colour!",
            "i will not pay $20000000 for",
        ),
        ("Mr. Smith's twenty-third café (sic)", "mister smith is 23rd cafe"),
        ("we've got three hundred and five, haven't we?", "we have got 305 have not we"),
        ("hmm", ""),
        ("", ""),
    ],
)
def test_english_is_written_as_whisper_writes_it_before_scoring(text, expected):
    assert load_normaliser("english")(text).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Grüße, „Straße“ – 5 %!", "grüße straße 5"),
        ("Gru\u0308ße <laut> [x] (leise) ＯＫ", "grüße ok"),
        ("ДОМОЙ… да", "домой да"),
        ("नमस्ते।", "नमस्ते"),
        ("我爱，你。", "我爱 你"),
        (" ", ""),
    ],
)
def test_other_languages_lose_case_punctuation_symbols_and_brackets_but_no_vowel(text, expected):
    assert load_normaliser("basic")(text) == expected


@pytest.mark.parametrize("name", ["english", "basic"])
def test_500_normalised_pairs_have_the_counts_of_whispers_normaliser_and_jiwer(name):
    normalise = load_normaliser(name)
    peer = EnglishTextNormalizer() if name == "english" else BasicTextNormalizer()
    compared = 0
    for reference, hypothesis in random_pairs(500, seed=5):
        mine = normalise(reference).split(), normalise(hypothesis).split()
        if name == "english" or not has_marks(reference + hypothesis):
            compared += 1
            assert mine == (peer(reference).split(), peer(hypothesis).split())

        counts = Counts.of(align(*mine))
        theirs = jiwer.process_words(" ".join(mine[0]), " ".join(mine[1]))
        assert counts.errors == theirs.substitutions + theirs.deletions + theirs.insertions
        assert counts.words == theirs.hits + theirs.substitutions + theirs.deletions
        if not counts.words:
            assert counts.inserted == theirs.insertions

    assert compared > 300


def has_marks(text):
    return any(unicodedata.category(letter)[0] == "M" for letter in text)


@pytest.mark.parametrize("text", ["Über (x) ALLES — …", "  two   spaces\t", "İstanbul", "½ ﬁ Ａ"])
def test_a_text_in_its_basic_form_stays_as_it_is(text):
    normalise = load_normaliser("basic")
    once = normalise(text)
    assert normalise(once) == once == " ".join(once.split())


def test_english_has_its_own_normaliser_and_all_other_languages_the_basic_one():
    assert normaliser_for("en") == "english"
    assert {normaliser_for(language) for language in ("de", "zh", "en,de", "", None)} == {"basic"}


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "whisper_normalization", None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # an environment of the user
    message = "needs whisper_normalization: pip install -r requirements/normalize.txt"
    with pytest.raises(ValueError, match=message):
        load_normaliser("english")
    assert load_normaliser("basic")("A!") == "a"
