"""Where a text is cut into subtitles."""

import random
from itertools import accumulate, pairwise

import pytest

from wenet_uio.addons.listen.results import GAP, LONGEST, WIDEST, cut_cues, srt_lines


def timed(words, seconds):
    """Give each letter of the words this many seconds; words follow one another."""
    ends = list(accumulate(len(word) * seconds for word in words))
    return list(zip(words, [0.0, *ends], ends, strict=False))


@pytest.mark.parametrize(
    "words",
    [
        list("きょうはいいてんきですね" * 9),  # one passage of 104 characters without a space
        ["สวัสดี"] * 30,
        ["x" * 104],
        ["x" * 700, "of", "y" * 30],
        [f"w{number}" for number in range(300)],
    ],
)
def test_no_subtitle_is_longer_or_wider_than_its_limits(words):
    text = "".join(words)
    cues = cut_cues(text, timed(words, 0.14))
    assert "".join(cue.text for cue in cues) == text
    assert max(len(cue.text) for cue in cues) <= WIDEST
    assert max(cue.end - cue.start for cue in cues) <= LONGEST + 1e-6
    assert all(left.end <= right.start + 1e-6 for left, right in pairwise(cues))


def test_a_long_word_of_few_letters_is_not_cut():
    assert cut_cues("oh no", [("oh", 0.0, 9.0), ("no", 9.0, 18.0)]) == [
        (0.0, 9.0, "oh"),
        (9.0, 18.0, "no"),
    ]


def test_a_subtitle_does_not_begin_with_a_punctuation_mark():
    text = "好" * WIDEST + "。好"
    cues = cut_cues(text, timed(text, 0.05))
    assert [cue.text for cue in cues] == ["好" * WIDEST + "。", "好"]
    assert cut_cues("。", [("。", 0.0, 1.0)]) == [(0.0, 1.0, "。")]


def test_subtitles_have_every_word_once_for_random_pauses():
    draw = random.Random(3)
    for _ in range(50):
        words, time = [], 0.0
        for _ in range(draw.randrange(40)):
            start = time + draw.choice((0.0, 0.0, GAP / 2, GAP * 2))
            time = start + draw.uniform(0.05, 1.5)
            words.append(("ab" * draw.randint(1, 6), start, time))
        text = " ".join(word for word, _, _ in words)
        cues = cut_cues(text, words)
        assert " ".join(cue.text for cue in cues) == text
        pauses = sum(right[1] - left[2] > GAP for left, right in pairwise(words))
        assert len(cues) >= pauses + bool(words)
        assert len(list(srt_lines(cues))) == len(cues)
