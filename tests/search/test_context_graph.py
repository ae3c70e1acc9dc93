import random
from itertools import pairwise

import pytest
import torch

from tests.support.search.plain_search import plain_hot_words
from wenet_uio.search.context_graph import (
    MOST_SCORES,
    ContextGraph,
    Phrase,
    text_and_score,
    tokenize_phrases,
)
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer


def bonuses(graph, sequence):
    """The bonus after each token, and at the end."""
    states, total, found = torch.zeros(1, 1, graph.state_size, dtype=torch.int64), 0.0, []
    for token in sequence:
        states, gain = graph.extend(
            states, torch.tensor([[token]]), torch.ones(1, 1, 1, dtype=torch.bool)
        )
        states, total = states[:, :, 0], total + gain.item()
        found.append(total)
    return [*found, total + graph.end(states).item()]


def test_the_bonus_of_an_incomplete_phrase_is_taken_back():
    graph = ContextGraph([(1, 2, 3)], 2.0)
    assert bonuses(graph, (1, 2, 3, 9)) == [2, 4, 6, 6, 6]
    assert bonuses(graph, (1, 2, 9)) == [2, 4, 0, 0]
    assert bonuses(graph, (1, 2)) == [2, 4, 0]
    assert bonuses(graph, (1, 1, 2, 3)) == [2, 2, 4, 6, 6]


def test_a_phrase_that_begins_a_longer_one_keeps_its_bonus_when_the_longer_one_fails():
    graph = ContextGraph([(1, 2), (1, 2, 3, 4)], 1.0)
    assert bonuses(graph, (1, 2, 3, 4)) == [1, 2, 3, 4, 4]
    assert bonuses(graph, (1, 2, 3, 9)) == [1, 2, 3, 2, 2]
    assert bonuses(graph, (1, 2, 9)) == [1, 2, 2, 2]


def test_a_token_in_two_phrases_has_one_bonus():
    graph = ContextGraph([(2, 3), (1, 2, 3, 4)], 1.0)
    assert bonuses(graph, (1, 2, 3, 4)) == [1, 2, 3, 4, 4]
    assert bonuses(graph, (1, 2, 3, 9)) == [1, 2, 3, 2, 2]


def test_the_bonus_equals_that_of_a_plain_count_for_random_phrases():
    draw = random.Random(0)
    for _ in range(100):
        phrases = [
            tuple(draw.choices((1, 2, 3), k=draw.randint(1, 5))) for _ in range(draw.randint(1, 6))
        ]
        graph, plain = ContextGraph(phrases, 1.0), plain_hot_words(phrases, 1.0)
        sequence = tuple(draw.choices((1, 2, 3, 4), k=20))
        expected = [plain(sequence[: place + 1], False) for place in range(20)]
        assert bonuses(graph, sequence) == [*expected, plain(sequence, True)]


def test_a_phrase_of_any_length_is_counted_to_its_last_token():
    phrase = tuple(range(1, 101))
    assert bonuses(ContextGraph([phrase], 1.0), phrase)[-2:] == [100, 100]
    assert bonuses(ContextGraph([phrase], 1.0), phrase[:-1])[-2:] == [99, 0]


def test_phrases_become_tokens_and_those_that_cannot_be_spelt_are_returned():
    tokenizer = Tokenizer(CharSplitter(), {"<blank>": 0, "<unk>": 1, "a": 2, "b": 3, "▁": 4})
    assert tokenize_phrases(["ab", "", "a b", "ax :2.0"], tokenizer) == (
        [Phrase([2, 3], None), Phrase([2, 4, 3], None)],
        ["ax"],
    )
    assert tokenize_phrases(["ab :2.5\n"], tokenizer) == ([Phrase([2, 3], 2.5)], [])


def test_a_phrase_has_its_own_score_and_the_highest_counts_where_phrases_overlap():
    graph = ContextGraph([(1, 2), (1, 2, 3, 4), (4, 5)], [1.0, 5.0, 2.0])
    assert bonuses(graph, (1, 2, 3, 4)) == [5, 10, 15, 20, 20]
    assert bonuses(graph, (1, 2, 3, 9)) == [5, 10, 15, 2, 2]
    assert bonuses(graph, (1, 2, 3, 4, 5)) == [5, 10, 15, 20, 22, 22]
    assert bonuses(ContextGraph([(1, 2), (1, 2)], [1.0, 5.0]), (1, 2)) == [5, 10, 10]


def test_the_bonus_of_phrases_with_scores_equals_that_of_a_plain_count():
    draw = random.Random(1)
    for _ in range(200):
        phrases = [
            tuple(draw.choices((1, 2, 3), k=draw.randint(1, 5))) for _ in range(draw.randint(1, 6))
        ]
        scores = [draw.choice((-3.0, -0.5, 0.0, 1.0, 2.5, 7.0)) for _ in phrases]
        graph, plain = ContextGraph(phrases, scores), plain_hot_words(phrases, scores)
        sequence = tuple(draw.choices((1, 2, 3, 4), k=12))
        expected = [plain(sequence[: place + 1], False) for place in range(12)]
        assert bonuses(graph, sequence) == [*expected, plain(sequence, True)]
        growth = max(
            (after - before for before, after in pairwise([0.0, *bonuses(graph, sequence)[:-1]]))
        )
        assert growth <= graph.most


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("new york :2.0", ("new york", 2.0)),
        ("new york\t:-.5 \n", ("new york", -0.5)),
        ("你好 :+3", ("你好", 3.0)),
        ("new york:2.0", ("new york:2.0", None)),
        ("at 10 :30 pm", ("at 10 :30 pm", None)),
        (":2.0", (":2.0", None)),
        ("x :nan", ("x :nan", None)),
        ("x :1e9", ("x :1e9", None)),
        ("a :1 :2", ("a :1", 2.0)),
    ],
)
def test_a_score_is_a_number_after_a_space_and_a_colon_at_the_end(line, expected):
    assert text_and_score(line) == expected


def test_too_many_different_scores_are_refused():
    phrases = [(number, 1) for number in range(MOST_SCORES + 1)]
    ContextGraph(phrases, [1.0] * len(phrases))
    with pytest.raises(ValueError, match=r"hot words with 17 different scores; at most 16: round"):
        ContextGraph(phrases, [float(number) for number in range(len(phrases))])
