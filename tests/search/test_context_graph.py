import random

import torch

from tests.support.search.plain_search import plain_hot_words
from wenet_uio.search.context_graph import ContextGraph, tokenize_phrases
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
    assert tokenize_phrases(["ab", "", "a b", "ax"], tokenizer) == ([[2, 3], [2, 4, 3]], ["ax"])
