import math
import random
from functools import lru_cache

import pytest
import torch

from tests.support.search.plain_search import (
    log_add,
    plain_hot_words,
    plain_language_model,
    plain_search,
    write_arpa,
)
from wenet_uio.search.context_graph import ContextGraph
from wenet_uio.search.ctc_prefix_beam import PrefixBeam, ctc_prefix_beam_search
from wenet_uio.search.language_model import LanguageModel
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

LETTERS = "▁abcde"
TOKENIZER = Tokenizer(
    CharSplitter(), {"<blank>": 0} | {letter: unit for unit, letter in enumerate(LETTERS, 1)}
)
# They begin with, contain and overlap each other
PHRASES = (
    (2,),
    (2, 3),
    (2, 3, 4, 5),
    (3, 4),
    (4, 4),
    (5, 2, 5, 2),
)


def random_posteriors(seed, batch, frames, vocabulary):
    """Posteriors with peaks as of a trained model; the blank is the best label of most frames."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3.0 * torch.randn(batch, frames, vocabulary, generator=generator)
    logits[..., 0] += 2.0
    lengths = torch.randint(1, frames + 1, (batch,), generator=generator)
    return logits.log_softmax(-1), lengths


def assert_equal_nbest(found, expected, within=1e-9):
    assert [hypothesis.tokens for hypothesis in found] == [prefix for prefix, _ in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx(
        [score for _, score in expected], abs=within
    )


@pytest.fixture(scope="module")
def arpa(tmp_path_factory):
    pytest.importorskip("kenlm")
    return str(
        write_arpa(
            tmp_path_factory.mktemp("lm") / "letters.arpa", [*LETTERS, "ab", "cab", "d", "ea"]
        )
    )


def spell_tokens(prefix, ended):
    return [TOKENIZER.symbol(token) for token in prefix]


def spell_words(prefix, ended):
    """Words between spaces; the last word is complete if a space or the end follows."""
    text = "".join(spell_tokens(prefix, ended)).replace("▁", " ")
    return text.split() if ended else text[: text.rfind(" ") + 1].split()


def beside(kind, arpa):
    """(scorers, the same bonus as a plain function)."""
    import kenlm

    scorers, plain = [], []
    if "hot" in kind:
        scorers.append(ContextGraph(PHRASES, 1.5))
        plain.append(plain_hot_words(PHRASES, 1.5))
    for unit, spell in (("token", spell_tokens), ("word", spell_words)):
        if f"{unit} LM" in kind:
            scorers.append(LanguageModel(arpa, TOKENIZER, 0.7, 0.4, unit))
            plain.append(plain_language_model(kenlm.Model(arpa), spell, 0.7, 0.4))
    return scorers, lru_cache(None)(
        lambda prefix, ended: sum(bonus(prefix, ended) for bonus in plain)
    )


@pytest.mark.parametrize(
    "kind", ["plain", "hot words", "token LM", "word LM", "hot words and token LM"]
)
def test_results_equal_those_of_the_plain_search_on_100_posteriors(kind, arpa):
    scorers, bonus = beside(kind, arpa)
    for beam_size in (*range(1, 9), 12, 20):
        log_probs, lengths = random_posteriors(beam_size, 10, 12, 7)
        log_probs = (0.6 * log_probs).log_softmax(-1)
        nbests = ctc_prefix_beam_search(log_probs, lengths, beam_size, scorers=scorers)
        for utterance, nbest in enumerate(nbests):
            expected = plain_search(log_probs[utterance, : lengths[utterance]], beam_size, bonus)
            # Kenlm adds in single precision
            assert_equal_nbest(nbest, expected, 1e-5 if "LM" in kind else 1e-9)


@pytest.mark.parametrize("vocabulary", [2, 30])
def test_results_equal_those_of_the_plain_search_in_longer_utterances(vocabulary):
    for beam_size in (1, 3, 10, 20):
        log_probs, lengths = random_posteriors(beam_size, 4, 40, vocabulary)
        nbests = ctc_prefix_beam_search(log_probs, lengths, beam_size)
        for utterance, nbest in enumerate(nbests):
            assert_equal_nbest(
                nbest, plain_search(log_probs[utterance, : lengths[utterance]], beam_size)
            )


def test_a_prefix_that_left_the_beam_and_came_back_is_still_one_prefix():
    for seed in range(10):
        log_probs, lengths = random_posteriors(seed, 4, 40, 4)
        log_probs = (0.3 * log_probs).log_softmax(-1)  # flat: prefixes come and go
        for utterance, nbest in enumerate(ctc_prefix_beam_search(log_probs, lengths, 4)):
            assert len({hypothesis.tokens for hypothesis in nbest}) == len(nbest)
            assert_equal_nbest(nbest, plain_search(log_probs[utterance, : lengths[utterance]], 4))


def test_with_a_beam_wider_than_all_prefixes_the_scores_are_exact_and_sum_to_one():
    log_probs, _ = random_posteriors(0, 1, 3, 3)
    nbest = ctc_prefix_beam_search(log_probs, torch.tensor([3]), 64)[0]
    assert log_add(*(hypothesis.score for hypothesis in nbest)) == pytest.approx(0.0, abs=1e-6)
    for hypothesis in nbest:
        target = torch.tensor([hypothesis.tokens], dtype=torch.long)
        loss = torch.nn.functional.ctc_loss(
            log_probs.transpose(0, 1),
            target,
            torch.tensor([3]),
            torch.tensor([target.size(1)]),
            reduction="none",
        )
        assert hypothesis.score == pytest.approx(-loss.item(), abs=1e-5)


def test_impossible_labels_never_appear():
    log_probs = torch.full((1, 4, 3), -torch.inf)
    log_probs[..., 0] = log_probs[..., 1] = math.log(0.5)
    for hypothesis in ctc_prefix_beam_search(log_probs, torch.tensor([4]), 8)[0]:
        assert set(hypothesis.tokens) <= {1}
        assert hypothesis.score > -math.inf


def test_no_frames_give_the_empty_hypothesis():
    nbests = ctc_prefix_beam_search(torch.zeros(2, 3, 4).log_softmax(-1), torch.tensor([0, 0]), 3)
    assert [nbest[0].tokens for nbest in nbests] == [(), ()]


@pytest.mark.third
@pytest.mark.parametrize(
    "kind", ["plain", "hot words", "token LM", "word LM", "hot words and token LM"]
)
def test_a_search_that_advances_in_parts_is_bit_for_bit_that_of_the_whole(kind, arpa):
    scorers, _ = beside(kind, arpa)
    draw = random.Random(kind)
    log_probs, _ = random_posteriors(1, 2, 40, 7)
    for each in log_probs:
        beam = PrefixBeam(1, 6, 0, scorers, log_probs.device)
        at = 0
        while at < len(each):
            size = draw.randint(0, 9)
            beam.advance(each[None, at : at + size])
            at = min(at + size, len(each))
            if at % 2 or at == len(each):  # a check takes longer than the parts
                expected = ctc_prefix_beam_search(
                    each[None, :at], torch.tensor([at]), 6, scorers=scorers
                )
                assert beam.nbests() == expected == beam.nbests()


@pytest.mark.parametrize("kind", ["plain", "hot words", "token LM", "hot words and token LM"])
def test_searches_that_advance_together_are_bit_for_bit_those_of_each_alone(kind, arpa):
    scorers, _ = beside(kind, arpa)
    log_probs, _ = random_posteriors(2, 5, 40, 7)
    beams = [PrefixBeam(1, 6, 0, scorers, log_probs.device) for _ in log_probs]
    assert len({beam.kind for beam in beams}) == 1
    given = [0] * len(beams)
    draw = random.Random(1)
    for _ in range(60):
        rows = draw.sample(range(5), draw.randint(1, 5))
        rows = [row for row in rows if given[row] < 40]
        if rows:
            parts = torch.stack([log_probs[row, given[row] : given[row] + 4] for row in rows])
            PrefixBeam.advance_together([beams[row] for row in rows], parts)
        for row in rows:
            given[row] += 4
    assert given == [40] * 5
    for row, beam in enumerate(beams):
        assert beam.nbests() == ctc_prefix_beam_search(
            log_probs[row, None], torch.tensor([40]), 6, scorers=scorers
        )


def test_a_beam_without_frames_has_the_empty_hypothesis():
    beam = PrefixBeam(1, 4, 0, (), torch.device("cpu"))
    beam.advance(torch.zeros(1, 0, 5))
    assert [(each.tokens, each.score) for each in beam.nbests()[0]] == [((), 0.0)]
