"""Searches of transducers, compared with plain searches and enumeration."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wenet_uio.families.transducer.conf import ConvPredictorConf, JointConf, RnnPredictorConf
from wenet_uio.families.transducer.joint import TransducerJoint
from wenet_uio.families.transducer.predictor import PREDICTORS
from wenet_uio.families.transducer.rnnt_beam import TOKENS_A_FRAME, rnnt_beam_search
from wenet_uio.families.transducer.search import MAX_TOKENS_A_FRAME, rnnt_greedy_search

DIM = 6


def make(vocab: int, seed: int, kind: str = "rnn") -> SimpleNamespace:
    """Predictor and joint network with large weights, so that results depend on the tokens
    before.
    """
    torch.manual_seed(seed)
    conf = {
        "rnn": RnnPredictorConf(embed_size=DIM, output_size=DIM, hidden_size=DIM, num_layers=1),
        "conv": ConvPredictorConf(embed_size=DIM, output_size=DIM, history_size=1),
    }[kind]
    parts = torch.nn.ModuleList(
        [PREDICTORS[kind](vocab, conf), TransducerJoint(vocab, DIM, DIM, JointConf(join_dim=8))]
    ).eval()
    for weight in parts.parameters():
        weight.data.mul_(2.0)
    return SimpleNamespace(predictor=parts[0], joint=parts[1], blank=0)


def scores_after(model, tokens, frame) -> torch.Tensor:
    """Log-probabilities (V,) of the next token after `tokens` at an encoder frame (D,)."""
    predicted, _ = model.predictor(torch.tensor([[model.blank, *tokens]]), model.predictor.start(1))
    return model.joint(frame, predicted[0, -1]).log_softmax(dim=0)


def mixed(log_probs, ctc, weight):
    return log_probs if ctc is None else (weight * log_probs.exp() + (1 - weight) * ctc.exp()).log()


def ways_through(frames: int, units: range, most: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield all choices of up to `most` tokens for each frame."""
    of_a_frame = [
        tokens for count in range(most + 1) for tokens in itertools.product(units, repeat=count)
    ]
    yield from map(list, itertools.product(of_a_frame, repeat=frames))


class Bigrams:
    """A PrefixScorer: a token has a bonus by the one before it, and each sequence one at its
    end.
    """

    state_size, most = 1, torch.inf

    def __init__(self, vocab: int, seed: int) -> None:
        self.after, self.ends = torch.randn(2, vocab, vocab, generator=torch.manual_seed(seed))

    def begin(self) -> Bigrams:
        return self

    def extend(self, states, tokens, wanted):
        following = tokens.unsqueeze(1).expand(wanted.shape)
        return following.unsqueeze(3), self.after[states, following].double()

    def end(self, states):
        return self.ends[0, states.squeeze(2)].double()

    def bonus(self, tokens: tuple[int, ...]) -> float:
        pairs = itertools.pairwise((0, *tokens))
        return sum(self.after[before, token].item() for before, token in pairs)

    def total(self, tokens: tuple[int, ...]) -> float:
        return self.bonus(tokens) + self.ends[0, (0, *tokens)[-1]].item()


def exhaustive(model, frames, ctc, weight) -> dict[tuple[int, ...], float]:
    """Probability of each token sequence: the sum over all ways to assign its tokens to frames.

    Without CTC, a blank follows the tokens of a frame. With it, a frame has one token or a blank.
    """
    units = range(1, model.joint.ffn_out.out_features)
    result: dict[tuple[int, ...], float] = {}
    for way in ways_through(len(frames), units, TOKENS_A_FRAME if ctc is None else 1):
        score, tokens = 0.0, ()
        for t, (frame, of_frame) in enumerate(zip(frames, way, strict=True)):
            closing = (model.blank,) if ctc is None or not of_frame else ()
            for unit in (*of_frame, *closing):
                log_probs = scores_after(model, tokens, frame)
                score += mixed(log_probs, None if ctc is None else ctc[t], weight)[unit].item()
                tokens += (unit,) if unit != model.blank else ()
        result[tokens] = np.logaddexp(result.get(tokens, -np.inf), score)
    return result


def plain(model, frames, ctc, weight, beam, scorer=None) -> list[tuple[tuple[int, ...], float]]:
    """The beam search with dictionaries instead of tensors."""
    bonus = scorer.bonus if scorer else lambda _: 0.0
    kept = {(): 0.0}
    for t, frame in enumerate(frames):
        reached: dict[tuple[int, ...], float] = {}

        def reach(tokens, score, reached=reached):
            reached[tokens] = np.logaddexp(reached.get(tokens, -np.inf), score)

        for _ in range(TOKENS_A_FRAME if ctc is None else 1):
            grown = {}
            labels = Counter()
            for tokens, score in kept.items():
                log_probs = scores_after(model, tokens, frame)
                log_probs = mixed(log_probs, None if ctc is None else ctc[t], weight)
                reach(tokens, score + log_probs[model.blank].item())
                for unit, value in enumerate(log_probs.tolist()):
                    if unit != model.blank:
                        grown[(*tokens, unit)] = score + value
                        labels[unit] = max(labels.get(unit, -np.inf), score + value)
            if scorer:
                best = {unit for unit, _ in labels.most_common(beam)}
                grown = {
                    tokens: score + bonus(tokens) - bonus(tokens[:-1])
                    for tokens, score in grown.items()
                    if tokens[-1] in best
                }
            kept = dict(sorted(grown.items(), key=lambda item: -item[1])[:beam])
        for tokens, score in kept.items():
            blank = (
                0.0 if ctc is not None else scores_after(model, tokens, frame)[model.blank].item()
            )
            reach(tokens, score + blank)
        kept = dict(sorted(reached.items(), key=lambda item: -item[1])[:beam])
    if scorer:
        kept = {
            tokens: score + scorer.total(tokens) - bonus(tokens) for tokens, score in kept.items()
        }
    return sorted(kept.items(), key=lambda item: -item[1])


def assert_hypotheses(nbest, expected: list[tuple[tuple[int, ...], float]]) -> None:
    """The hypotheses of an utterance have these tokens and scores, in this order."""
    assert [hypothesis.tokens for hypothesis in nbest] == [tokens for tokens, _ in expected]
    assert [hypothesis.score for hypothesis in nbest] == pytest.approx(
        [score for _, score in expected], abs=1e-3
    )


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn", "conv"])
@pytest.mark.parametrize("weight", [1.0, 0.6])
def test_a_beam_wider_than_all_sequences_equals_enumeration(kind, weight):
    model = make(3, seed=1, kind=kind)
    encoder_out = torch.randn(2, 2, DIM)
    ctc = torch.randn(2, 2, 3).log_softmax(dim=2) if weight < 1 else None
    nbests = rnnt_beam_search(model, encoder_out, torch.tensor([2, 1]), 130, ctc, weight)
    for row, frames in enumerate((2, 1)):
        expected = exhaustive(
            model, encoder_out[row, :frames], None if ctc is None else ctc[row], weight
        )
        assert {hypothesis.tokens for hypothesis in nbests[row]} == set(expected)
        for hypothesis in nbests[row]:
            assert hypothesis.score == pytest.approx(expected[hypothesis.tokens], abs=1e-4)
        scores = [hypothesis.score for hypothesis in nbests[row]]
        assert scores == sorted(scores, reverse=True)
        total = sum(map(np.exp, scores))
        assert total == pytest.approx(1.0, abs=1e-4) if ctc is not None else 0.1 < total <= 1.0


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 3, 7])
@pytest.mark.parametrize("weight", [1.0, 0.6])
def test_a_narrow_beam_equals_a_plain_search(beam, weight):
    several = 0
    for seed in range(4):
        model = make(6, seed)
        encoder_out = 2 * torch.randn(3, 7, DIM)
        ctc = torch.randn(3, 7, 6).log_softmax(dim=2) if weight < 1 else None
        lengths = [7, 1, 5]
        nbests = rnnt_beam_search(model, encoder_out, torch.tensor(lengths), beam, ctc, weight)
        for row, frames in enumerate(lengths):
            of_row = None if ctc is None else ctc[row]
            expected = plain(model, encoder_out[row, :frames], of_row, weight, beam)
            assert_hypotheses(nbests[row], expected)
            for hypothesis in nbests[row]:
                assert list(hypothesis.frames) == sorted(hypothesis.frames)
                assert all(0 <= frame < frames for frame in hypothesis.frames)
                several += len(hypothesis.frames) > len(set(hypothesis.frames))
                for place, (token, frame, sure) in enumerate(
                    zip(hypothesis.tokens, hypothesis.frames, hypothesis.confidences, strict=True)
                ):
                    log_probs = scores_after(
                        model, hypothesis.tokens[:place], encoder_out[row, frame]
                    )
                    log_probs = mixed(log_probs, None if of_row is None else of_row[frame], weight)
                    assert sure == pytest.approx(log_probs[token].exp().item(), abs=1e-4)
    assert (several > 0) == (weight == 1.0 and beam > 1)


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn", "conv"])
@pytest.mark.parametrize("weight", [1.0, 0.6])
@pytest.mark.parametrize("seeds", [(5,), (5, 6)])
def test_bonuses_are_added_to_the_probability_of_every_sequence(kind, weight, seeds):
    model, scorers = make(3, seed=1, kind=kind), [Bigrams(3, seed) for seed in seeds]
    encoder_out = torch.randn(2, 2, DIM)
    ctc = torch.randn(2, 2, 3).log_softmax(dim=2) if weight < 1 else None
    nbests = rnnt_beam_search(model, encoder_out, torch.tensor([2, 1]), 130, ctc, weight, scorers)
    for row, frames in enumerate((2, 1)):
        expected = exhaustive(
            model, encoder_out[row, :frames], None if ctc is None else ctc[row], weight
        )
        expected = {
            tokens: score + sum(scorer.total(tokens) for scorer in scorers)
            for tokens, score in expected.items()
        }
        score_of = {hypothesis.tokens: hypothesis.score for hypothesis in nbests[row]}
        assert score_of == pytest.approx(expected, abs=1e-4)
        assert list(score_of.values()) == sorted(score_of.values(), reverse=True)


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 3, 7])
@pytest.mark.parametrize("weight", [1.0, 0.6])
def test_a_narrow_beam_with_bonuses_equals_a_plain_search(beam, weight):
    changed = 0
    for seed in range(4):
        model, scorer = make(6, seed), Bigrams(6, seed)
        encoder_out = 2 * torch.randn(3, 7, DIM)
        ctc = torch.randn(3, 7, 6).log_softmax(dim=2) if weight < 1 else None
        lengths = [7, 1, 5]
        without, nbests = (
            rnnt_beam_search(model, encoder_out, torch.tensor(lengths), beam, ctc, weight, scorers)
            for scorers in ([], [scorer])
        )
        for row, frames in enumerate(lengths):
            of_row = None if ctc is None else ctc[row]
            expected = plain(model, encoder_out[row, :frames], of_row, weight, beam, scorer)
            assert_hypotheses(nbests[row], expected)
            changed += nbests[row][0].tokens != without[row][0].tokens
    assert changed > 0


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn", "conv"])
def test_a_wide_beam_finds_at_least_what_greedy_search_finds(kind):
    for seed in range(6):
        model = make(5, seed, kind)
        model.joint.ffn_out.bias[model.blank] += 2.0
        encoder_out, lengths = 3 * torch.randn(4, 6, DIM), torch.tensor([6, 4, 0, 1])
        for (path,), nbest in zip(
            rnnt_greedy_search(model, encoder_out, lengths),
            rnnt_beam_search(model, encoder_out, lengths, 60),
            strict=True,
        ):
            if max(Counter(path.frames).values(), default=0) <= TOKENS_A_FRAME:
                assert nbest[0].score >= path.score - 1e-4


@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn", "conv"])
def test_greedy_search_takes_the_best_of_every_step(kind):
    several = 0
    for seed in range(4):
        model = make(5, seed, kind)
        model.joint.ffn_out.bias[model.blank] += 2.0
        encoder_out, lengths = 3 * torch.randn(4, 6, DIM), torch.tensor([6, 4, 0, 1])
        nbests = rnnt_greedy_search(model, encoder_out, lengths)
        for row, frames in enumerate(lengths.tolist()):
            tokens, times, sure, score = (), (), (), 0.0
            for t in range(frames):
                for _ in range(MAX_TOKENS_A_FRAME):
                    value, unit = scores_after(model, tokens, encoder_out[row, t]).max(dim=0)
                    score += value.item()
                    if unit == model.blank:
                        break
                    tokens, times, sure = (
                        (*tokens, unit.item()),
                        (*times, t),
                        (*sure, value.exp().item()),
                    )
            (hypothesis,) = nbests[row]
            assert (hypothesis.tokens, hypothesis.frames) == (tokens, times)
            assert hypothesis.confidences == pytest.approx(sure, abs=1e-4)
            assert hypothesis.score == pytest.approx(score, abs=1e-3, rel=1e-4)
            several += len(times) > len(set(times))
    assert several > 0


@torch.no_grad()
def test_the_search_ends_with_a_model_that_never_gives_a_blank():
    model = make(4, seed=0)
    model.joint.ffn_out.bias[0] = -1000.0
    (nbest,) = rnnt_greedy_search(model, torch.randn(1, 3, DIM), torch.tensor([3]))
    assert len(nbest[0].tokens) == 3 * MAX_TOKENS_A_FRAME


class HostReads(TorchDispatchMode):
    """Counts the numbers of tensors that the host reads."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name == "aten::_local_scalar_dense"
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def test_greedy_search_reads_the_device_a_few_times_not_once_a_symbol():
    model = make(5, seed=1)
    model.joint.ffn_out.bias[model.blank] += 3.0
    with HostReads() as reads:
        nbests = rnnt_greedy_search(model, 3 * torch.randn(3, 40, DIM), torch.tensor([40, 21, 7]))
    assert len(nbests[0][0].tokens) > 50
    assert reads.count <= 8


@torch.no_grad()
def test_no_frames_give_an_empty_hypothesis():
    model = make(4, seed=0)
    for nbests in (
        rnnt_beam_search(model, torch.randn(2, 3, DIM), torch.tensor([0, 0]), 4),
        rnnt_greedy_search(model, torch.randn(2, 3, DIM), torch.tensor([0, 0])),
    ):
        assert [
            (hypothesis.tokens, hypothesis.score) for nbest in nbests for hypothesis in nbest
        ] == [((), 0.0)] * 2
