import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.support.search.plain_search import write_arpa
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

LETTERS = ["▁", "a", "b", "我", "你"]
TOKENIZER = Tokenizer(
    CharSplitter(), {"<blank>": 0} | {letter: unit for unit, letter in enumerate(LETTERS, 1)}
)


def total(model, tokens):
    """Bonus of a complete sequence."""
    states, bonus = torch.zeros(1, 1, 1, dtype=torch.int64), 0.0
    for token in tokens:
        states, gain = model.extend(
            states, torch.tensor([[token]]), torch.ones(1, 1, 1, dtype=torch.bool)
        )
        states, bonus = states[:, :, 0], bonus + gain.item()
    return bonus + model.end(states).item()


@pytest.mark.parametrize(
    ("unit", "units"),
    [("token", ["a", "▁", "b", "a", "我", "你", "a"]), ("word", ["a", "ba", "我", "你", "a"])],
)
def test_units_are_tokens_or_words_and_the_end_is_scored(tmp_path, unit, units):
    kenlm = pytest.importorskip("kenlm")
    arpa = str(write_arpa(tmp_path / "lm.arpa", [*LETTERS, "ba"]))
    model = LanguageModel(arpa, TOKENIZER, 0.5, 0.25, unit)
    expected = 0.5 * math.log(10) * kenlm.Model(arpa).score(" ".join(units)) + 0.25 * len(units)
    assert total(model, [2, 1, 3, 2, 4, 5, 2]) == pytest.approx(expected)


def test_searches_share_a_table_until_it_is_large_and_keep_it_then(tmp_path, monkeypatch):
    pytest.importorskip("kenlm")
    model = LanguageModel(write_arpa(tmp_path / "lm.arpa", LETTERS), TOKENIZER, 0.5, 0.0, "token")
    first = model.begin()
    before = total(first, [2, 3, 4])
    assert model.begin() is first
    monkeypatch.setattr("wenet_uio.search.language_model.MOST_EXTENSIONS", 2)
    second = model.begin()
    assert second is not first
    assert total(second, [2, 3, 4]) == total(first, [2, 3, 4]) == before
    assert model.begin() is not second


def test_a_file_that_is_not_a_language_model_is_named(tmp_path):
    pytest.importorskip("kenlm")
    with pytest.raises(FileNotFoundError, match="none: no such language model"):
        LanguageModel(tmp_path / "none", TOKENIZER, 0.5, 0.0, "token")
    (tmp_path / "text").write_text("no model\n")
    with pytest.raises(ValueError, match="text: KenLM reads neither an ARPA file nor a binary"):
        LanguageModel(tmp_path / "text", TOKENIZER, 0.5, 0.0, "token")


@pytest.mark.parametrize("content", [b"", b"\xaa" * 300, b"\xef\xbb\xbf\\data\\\n"])
def test_what_is_no_language_model_is_one_short_line(content, tmp_path):
    pytest.importorskip("kenlm")
    path = tmp_path / "lm.arpa"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="KenLM reads neither") as raised:
        LanguageModel(path, TOKENIZER, 0.5, 0.0, "token")
    message = str(raised.value)
    assert message.count(str(path)) == 1
    assert "\n" not in message
    assert "threw" not in message


def test_a_language_model_of_other_units_is_an_error_and_of_few_units_a_warning(tmp_path, caplog):
    pytest.importorskip("kenlm")
    words = write_arpa(tmp_path / "words.arpa", ["hello", "world"])
    with pytest.raises(ValueError, match=r"words\.arpa: none of the 5 units of the recogniser"):
        LanguageModel(words, TOKENIZER, 0.5, 0.0, "token")
    LanguageModel(words, TOKENIZER, 0.5, 0.0, "word")

    LanguageModel(write_arpa(tmp_path / "most.arpa", LETTERS[:3]), TOKENIZER, 0.5, 0.0, "token")
    assert not caplog.messages
    LanguageModel(write_arpa(tmp_path / "few.arpa", LETTERS[:2]), TOKENIZER, 0.5, 0.0, "token")
    assert "few.arpa: only 2 of the 5 units of the recogniser" in caplog.text


def test_without_kenlm_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ValueError, match="pip install kenlm"):
        LanguageModel("lm.arpa", TOKENIZER, 0.5, 0.0, "token")


def test_streams_share_a_loaded_file_until_it_changes(tmp_path):
    pytest.importorskip("kenlm")
    arpa = write_arpa(tmp_path / "lm.arpa", LETTERS)
    first, second = (LanguageModel(arpa, TOKENIZER, weight, 0.0, "token") for weight in (0.5, 0.7))
    assert first._model is second._model
    write_arpa(arpa, LETTERS[:-1])
    assert LanguageModel(arpa, TOKENIZER, 0.5, 0.0, "token")._model is not first._model


def test_searches_in_two_threads_share_a_table_and_get_the_same_scores(tmp_path):
    pytest.importorskip("kenlm")
    arpa = write_arpa(tmp_path / "lm.arpa", LETTERS)
    alone = _total(LanguageModel(arpa, TOKENIZER, 0.5, 0.0, "token").begin(), 0)
    shared = LanguageModel(arpa, TOKENIZER, 0.5, 0.0, "token")
    with ThreadPoolExecutor(4) as threads:
        totals = list(threads.map(lambda _: _total(shared.begin(), 0), range(8)))
    assert totals == [alone] * 8


def _total(model, state, depth=6):
    """Sum of the scores of all sequences of `depth` tokens."""
    tokens = torch.arange(2, 2 + 3).view(1, 3)
    wanted = torch.ones(1, 1, 3, dtype=torch.bool)
    states, gains = model.extend(torch.full((1, 1, 1), state), tokens, wanted)
    below = [_total(model, int(each), depth - 1) for each in states.flatten()] if depth > 1 else []
    return round(float(gains.sum()) + sum(below), 6)
