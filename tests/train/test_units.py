"""Texts that the units of a model cannot write are told."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from wenet_uio.dataset.corpus.base import Corpus, Texts
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.types import SampleRef
from wenet_uio.text.aggregate import AggregateTokenizer
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.train.units import TEXTS, check_units


class ListOfTexts:
    """What the check reads of a corpus: texts in shards."""

    data_list, is_remote = "train.list", False

    def __init__(self, shards: Sequence[Sequence[Texts]]) -> None:
        self.shards = shards
        self.samples = np.array([len(shard) for shard in shards])
        self.num_samples = int(self.samples.sum())
        self.seen: list[Texts] = []

    def texts(self, ref: SampleRef) -> Texts:
        found = self.shards[ref.shard][ref.row]
        if found.texts == ("bad",):
            raise ListError("no audio")
        self.seen.append(found)
        return found


def letters(units: str) -> Tokenizer:
    symbols = {name: number for number, name in enumerate(("<blank>", "<unk>", *units))}
    return Tokenizer(CharSplitter(), symbols)


def check(corpus: ListOfTexts, tokenizer: Tokenizer) -> None:
    check_units(cast("Corpus", corpus), tokenizer)


def of(*texts: str, **fields: str) -> list[Texts]:
    return [Texts((text,), fields) for text in texts]


def test_texts_of_known_units_are_silent_whatever_the_shards(caplog):
    corpus = ListOfTexts([of("ab"), [], of("ba", "bad", "aa")])
    check(corpus, letters("dab"))
    assert [found.texts[0] for found in corpus.seen] == ["ab", "ba", "aa"]
    check(ListOfTexts([[]]), letters("ab"))
    assert caplog.messages == []


def test_some_unknown_tokens_are_told_with_their_share_and_most_frequent_ones(caplog):
    check(ListOfTexts([of("aaaaaaaa", "xxyb")]), letters("ab"))
    assert caplog.records[0].levelno == logging.WARNING
    assert caplog.messages[0].startswith(
        "train.list: 25 % of the tokens are not units of the model"
    )
    assert "such as x, y, and are" in caplog.messages[0]


def test_each_language_has_its_own_units_and_an_unknown_one_is_left_to_the_reader(caplog):
    tokenizer = AggregateTokenizer({"en": letters("ab"), "ru": letters("жя")})
    fits = [*of("ab", lang="en"), *of("жя", lang="ru"), *of("??", lang="fr"), *of("??")]
    check(ListOfTexts([fits]), tokenizer)
    assert caplog.messages == []
    with pytest.raises(ValueError, match="no token of its texts is a unit of the model"):
        check(ListOfTexts([of("жя", lang="en")]), tokenizer)


def test_texts_of_a_tokenizer_without_unk_are_left_to_the_reader(caplog):
    known = letters("ab").symbols
    without = Tokenizer(CharSplitter(), {name: known[name] for name in known if name != "<unk>"})
    check(ListOfTexts([of("ab", "??")]), without)
    assert caplog.messages == []


def test_a_long_list_is_looked_at_in_all_its_parts():
    corpus = ListOfTexts([of(*["a"] * 700), of(*["b"] * 300)])
    check(corpus, letters("ab"))
    assert len(corpus.seen) == TEXTS
    assert sum(found.texts == ("b",) for found in corpus.seen) == TEXTS * 3 // 10


def test_texts_of_which_no_token_is_a_unit_end_before_the_first_step():
    with pytest.raises(ValueError, match=r"train\.list: no token .* such as x, y: name the units"):
        check(ListOfTexts([of("xxy", "yx")]), letters("ab"))


def test_characters_of_texts_with_a_units_file_of_words_end_with_the_cause():
    words = {unit: number for number, unit in enumerate(("<blank>", "<unk>", "a", "seven", "one"))}
    corpus = ListOfTexts([of("seven a one", "a seven")])
    cause = "cut into characters, such as e, .* longer, such as seven: set .*split_with_space"
    with pytest.raises(ValueError, match=cause):
        check(corpus, Tokenizer(CharSplitter(), words))
    check(corpus, Tokenizer(CharSplitter(split_with_space=True), words))
