import itertools
import math

import pytest
import torch

from tests.support.search.plain_search import log_add
from wenet_uio.search.ctc_prefix_score import CtcPrefixScore

EOS = 3


def all_sequences(log_probs):
    """{tokens: ln P} of every possible token sequence, summed path by path; log_probs (T, V), blank
    is 0.
    """
    sums = {}
    frames, labels = log_probs.shape
    for path in itertools.product(range(labels), repeat=frames):
        tokens = tuple(label for label, _ in itertools.groupby(path) if label)
        score = sum(log_probs[frame, label].item() for frame, label in enumerate(path))
        sums[tokens] = log_add(sums.get(tokens, -math.inf), score)
    return sums


def test_scores_of_prefixes_and_ended_sequences_are_the_sum_over_all_paths():
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64).log_softmax(-1)
    lengths = torch.tensor([6, 4])
    ctc = CtcPrefixScore(log_probs, lengths, weight=1.0, blank=0, eos=EOS)
    truth = [all_sequences(log_probs[row, : lengths[row]]) for row in range(2)]

    candidates = torch.tensor([[[1, 2, EOS, 0]]] * 2)
    prefixes, totals, last = [[()], [()]], torch.zeros(2, 1), torch.full((2, 1), EOS)
    for choice in ([0, 1], [0, 5], [1, 4]):  # of the candidates of all hypotheses
        hypotheses = len(prefixes[0])
        gain = ctc.combine(torch.zeros(2, hypotheses, 4), candidates.expand(2, hypotheses, 4), last)
        found = totals.unsqueeze(2) + gain
        for row, place in itertools.product(range(2), range(hypotheses)):
            prefix = prefixes[row][place]
            for number, token in enumerate((1, 2)):
                begun = (*prefix, token)
                sums = [
                    score for tokens, score in truth[row].items() if tokens[: len(begun)] == begun
                ]
                score = found[row, place, number].item()
                assert score == pytest.approx(log_add(*sums), abs=1e-5) if sums else score < -5000
            assert found[row, place, 2].item() == pytest.approx(truth[row][prefix], abs=1e-5)
            assert found[row, place, 3].item() == -math.inf
        chosen = torch.tensor([choice] * 2)
        ctc.choose(chosen)
        totals, last = found.flatten(1).gather(1, chosen), candidates[0, 0][chosen % 4]
        prefixes = [
            [(*row[number // 4], candidates[0, 0, number % 4].item()) for number in choice]
            for row in prefixes
        ]


def test_scores_are_exact_for_impossible_labels_and_long_utterances():
    log_probs = torch.full((1, 500, 4), -torch.inf)
    log_probs[..., 0] = math.log(0.5)
    log_probs[..., 1] = math.log(0.5)
    ctc = CtcPrefixScore(log_probs, torch.tensor([500]), weight=1.0, blank=0, eos=EOS)
    gain = ctc.combine(torch.zeros(1, 1, 3), torch.tensor([[[1, 2, EOS]]]), torch.tensor([[EOS]]))
    # All but one path in 2^500 begin with label 1
    assert gain[0, 0, 0].item() == pytest.approx(0.0, abs=1e-6)
    assert gain[0, 0, 1].item() < -9000
    assert gain[0, 0, 2].item() == pytest.approx(500 * math.log(0.5), rel=1e-6)
