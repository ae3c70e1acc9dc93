import json

import pytest

from wenet_uio.serve.messages import RefusedError, phrases_of, signal_of


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        (["a" * 101], "a phrase may have 100 characters, found 101"),
        ("\n".join(["b" * 100] * 201), "all phrases may have 20000 characters, found 20100"),
        (["c"] * 1001, "at most 1000 phrases"),
    ],
)
def test_hot_words_that_would_take_minutes_to_prepare_are_refused(phrases, message):
    with pytest.raises(RefusedError, match=message):
        phrases_of(phrases)


def test_1000_phrases_of_20_characters_are_taken():
    assert len(phrases_of(["twenty characters, !"] * 1000)) == 1000


def test_half_a_surrogate_pair_is_no_text():
    for field in ("token", "hot_words", "nbest"):
        with pytest.raises(RefusedError, match="must be JSON"):
            signal_of(json.dumps({"signal": "start", field: "\ud800"}))
