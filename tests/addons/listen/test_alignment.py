import pytest
import torch

from wenet_uio.addons.listen.alignment import align
from wenet_uio.search.timing import FrameClock
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

UNITS = ["<blank>", "▁", "a", "b", "我"]
TOKENIZER = Tokenizer(CharSplitter(), {unit: place for place, unit in enumerate(UNITS)})
CLOCK = FrameClock(step=0.04, offset=0.02, shift=0.01)


def posteriors(labels, sure=0.9):
    """(T, V): each frame gives its label `sure`."""
    probs = torch.full((len(labels), len(UNITS)), (1 - sure) / (len(UNITS) - 1))
    probs[range(len(labels)), labels] = sure
    return probs.log()


def test_tokens_and_words_get_the_frames_that_emit_them():
    heard = [0, 2, 2, 3, 0, 1, 3, 0, 4, 4, 0]
    found = align(posteriors(heard), [2, 3, 1, 3, 4], TOKENIZER, CLOCK, 0.5, blank=0)
    assert [each.text for each in found.tokens] == ["a", "b", "▁", "b", "我"]
    assert [each.start for each in found.tokens] == pytest.approx([0.06, 0.14, 0.22, 0.26, 0.34])
    assert [each.end for each in found.tokens] == pytest.approx([0.14, 0.18, 0.26, 0.3, 0.42])
    assert [(each.text, each.start, each.end) for each in found.words] == [
        ("ab", pytest.approx(0.06), pytest.approx(0.18)),
        ("b", pytest.approx(0.22), pytest.approx(0.3)),
        ("我", pytest.approx(0.34), pytest.approx(0.42)),
    ]
    assert [each.confidence for each in found.words] == pytest.approx([0.9] * 3)
    assert found.score == pytest.approx(0.0, abs=1e-5)


def test_a_wrong_text_scores_below_the_right_one():
    heard = posteriors([0, 2, 2, 3, 0, 1, 3, 0])
    right = align(heard, [2, 3, 1, 3], TOKENIZER, CLOCK, 0.5, blank=0)
    wrong = align(heard, [2, 4, 1, 3], TOKENIZER, CLOCK, 0.5, blank=0)
    assert right.score == pytest.approx(0.0, abs=1e-5)
    assert wrong.score == pytest.approx(
        (torch.tensor(0.025).log() - torch.tensor(0.9).log()).item() / 4, abs=1e-4
    )
    assert align(heard, [2] * 5, TOKENIZER, CLOCK, 0.5, blank=0) is None


def test_an_empty_text_has_no_intervals():
    found = align(posteriors([0, 0]), [], TOKENIZER, CLOCK, 0.1, blank=0)
    assert (found.tokens, found.words, found.score) == ((), (), pytest.approx(0.0))
