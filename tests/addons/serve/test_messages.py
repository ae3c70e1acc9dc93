import json

import pytest

from wenet_uio.addons.serve.messages import (
    RefusedError,
    fitting_phrases,
    parse_phrases,
    parse_signal,
)


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        (["a" * 101], "a phrase may have 100 characters, found 101"),
        ("\n".join(["b" * 100] * 201), "all phrases may have 20000 characters, found 20100"),
        (["c"] * 1001, "at most 1000 phrases"),
        (["c :101"], "a score may be -100 to 100, found 101"),
        ([f"c :{score}" for score in range(17)], "at most 16 different scores, found 17"),
    ],
)
def test_hot_words_that_would_take_minutes_to_prepare_are_refused(phrases, message):
    with pytest.raises(RefusedError, match=message):
        parse_phrases(phrases)


def test_1000_phrases_of_20_characters_are_taken():
    assert len(parse_phrases(["twenty characters, !"] * 1000)) == 1000


def test_phrases_beyond_the_limits_of_number_and_length_do_not_fit():
    phrases = [str(number) for number in range(1200)]
    assert fitting_phrases(phrases, ()) == phrases[:1000]
    assert fitting_phrases(phrases, ["taken"] * 999) == ["0"]
    assert fitting_phrases(["a" * 100] * 300, ["b" * 100]) == ["a" * 100] * 199
    assert fitting_phrases([], []) == []


def test_half_a_surrogate_pair_is_no_text():
    for field in ("token", "hot_words", "nbest"):
        with pytest.raises(RefusedError, match="must be JSON"):
            parse_signal(json.dumps({"signal": "start", field: "\ud800"}))
