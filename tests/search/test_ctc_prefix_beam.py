import math
from collections import defaultdict

import pytest
import torch

from wenet_uio.search.ctc_prefix_beam import ctc_prefix_beam_search


def log_add(*values):
    highest = max(values)
    return highest if highest == -math.inf else highest + math.log(sum(math.exp(value - highest) for value in values))


def plain_search(log_probs, beam_size):
    """The search over one utterance as the field writes it: a dictionary of prefixes, frame by frame."""
    beam = [((), 0.0, -math.inf)]
    for frame in log_probs.double():
        following = defaultdict(lambda: [-math.inf, -math.inf])
        best, labels = frame.topk(min(beam_size, frame.numel()))
        for label, score in zip(labels.tolist(), best.tolist(), strict=True):
            for prefix, in_blank, in_token in beam:
                total = log_add(in_blank, in_token)
                if label == 0:
                    following[prefix][0] = log_add(following[prefix][0], total + score)
                    continue
                longer = following[(*prefix, label)]
                if prefix and prefix[-1] == label:
                    following[prefix][1] = log_add(following[prefix][1], in_token + score)
                    longer[1] = log_add(longer[1], in_blank + score)
                else:
                    longer[1] = log_add(longer[1], total + score)
        ranked = sorted(following.items(), key=lambda item: log_add(*item[1]), reverse=True)
        beam = [(prefix, *scores) for prefix, scores in ranked[:beam_size]]
    results = [(prefix, log_add(in_blank, in_token)) for prefix, in_blank, in_token in beam]
    return [(prefix, score) for prefix, score in results if score > -math.inf]


def random_posteriors(seed, batch, frames, vocabulary):
    """Peaked like a trained model's, with the blank most often on top."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3.0 * torch.randn(batch, frames, vocabulary, generator=generator)
    logits[..., 0] += 2.0
    lengths = torch.randint(1, frames + 1, (batch,), generator=generator)
    return logits.log_softmax(-1), lengths


def assert_equal_nbest(found, expected):
    assert [hypothesis.tokens for hypothesis in found] == [prefix for prefix, _ in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for _, score in expected], abs=1e-9)


@pytest.mark.parametrize("beam_size", range(1, 21))
def test_it_finds_what_the_plain_search_finds(beam_size):
    for vocabulary in (2, 5, 30):
        log_probs, lengths = random_posteriors(beam_size, 6, 24, vocabulary)
        nbests = ctc_prefix_beam_search(log_probs, lengths, beam_size)
        for utterance, nbest in enumerate(nbests):
            assert_equal_nbest(nbest, plain_search(log_probs[utterance, : lengths[utterance]], beam_size))


def test_a_prefix_that_left_the_beam_and_came_back_is_still_one_prefix():
    for seed in range(40):
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
            log_probs.transpose(0, 1), target, torch.tensor([3]), torch.tensor([target.size(1)]), reduction="none"
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
