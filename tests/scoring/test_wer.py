import math
import random

import jiwer
import pytest

from wenet_uio.scoring.wer import Counts, align
from wenet_uio.scoring.words import WordRules


def plain_alignment(reference, hypothesis):
    """The distance matrix cell by cell; on ties a deletion, then an insertion, then a pair (WeNet's
    order).
    """
    rows, columns = len(reference) + 1, len(hypothesis) + 1
    distance = [[row + column for column in range(columns)] for row in range(rows)]
    for row in range(1, rows):
        for column in range(1, columns):
            distance[row][column] = min(
                distance[row - 1][column] + 1,
                distance[row][column - 1] + 1,
                distance[row - 1][column - 1] + (reference[row - 1] != hypothesis[column - 1]),
            )
    pairs = []
    row, column = rows - 1, columns - 1
    while row or column:
        if row and distance[row][column] == distance[row - 1][column] + 1:
            row -= 1
            pairs.append((reference[row], None))
        elif column and distance[row][column] == distance[row][column - 1] + 1:
            column -= 1
            pairs.append((None, hypothesis[column]))
        else:
            row, column = row - 1, column - 1
            pairs.append((reference[row], hypothesis[column]))
    return pairs[::-1]


def random_pairs(count, longest, words="abc"):
    draw = random.Random(0)
    for _ in range(count):
        yield tuple(draw.choices(words, k=draw.randint(0, longest)) for _ in range(2))


def test_alignments_equal_those_of_the_plain_algorithm():
    for reference, hypothesis in random_pairs(3000, 10):
        assert align(reference, hypothesis) == plain_alignment(reference, hypothesis)


def test_long_alignments_equal_those_of_the_plain_algorithm():
    for reference, hypothesis in random_pairs(20, 200, "abcdefgh"):
        assert align(reference, hypothesis) == plain_alignment(reference, hypothesis)


def test_errors_of_characters_equal_those_of_jiwer():
    rules = WordRules("char", case_sensitive=True)
    pairs = [
        [" ".join(side) for side in pair]
        for pair in random_pairs(1100, 6, ["ab", "cab", "d"])
        if pair[0]
    ][:1000]
    found = sum((Counts.of(align(rules(one), rules(other))) for one, other in pairs), Counts())
    peer = jiwer.process_characters(*(list(side) for side in zip(*pairs, strict=True)))
    assert found.errors == peer.substitutions + peer.deletions + peer.insertions
    assert found.rate == pytest.approx(100 * peer.cer)


def test_errors_equal_those_of_jiwer_on_10000_random_pairs():
    # Jiwer wants a reference
    pairs = [pair for pair in random_pairs(11_000, 12) if pair[0]][:10_000]
    peer = jiwer.process_words(
        *([" ".join(side) for side in sides] for sides in zip(*pairs, strict=True))
    )
    assert len(peer.alignments) == 10_000
    total = Counts()
    for (reference, hypothesis), chunks in zip(pairs, peer.alignments, strict=True):
        counts = Counts.of(align(reference, hypothesis))
        wrong = [chunk for chunk in chunks if chunk.type != "equal"]
        sizes = (
            max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
            for chunk in wrong
        )
        assert counts.errors == sum(sizes)
        total += counts
    assert total.errors == peer.substitutions + peer.deletions + peer.insertions
    assert total.rate == pytest.approx(100 * peer.wer)


def test_every_kind_of_error_is_counted_and_written_in_the_format_of_wenet():
    counts = Counts.of(align(["a", "b", "c", "d"], ["a", "x", "d", "e"]))
    assert counts == Counts(correct=2, substituted=1, deleted=1, inserted=1)
    assert (
        str(Counts(correct=2, substituted=1, deleted=1, inserted=1))
        == "75.00 % N=4 C=2 S=1 D=1 I=1"
    )


def test_empty_sides_are_all_deletions_or_insertions():
    assert align([], []) == []
    assert align(["a", "b"], []) == [("a", None), ("b", None)]
    assert align([], ["a"]) == [(None, "a")]
    assert Counts.of(align([], ["a"])).rate == math.inf
    assert Counts().rate == 0.0
