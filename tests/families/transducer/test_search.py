"""Searches of transducers, compared with plain searches and enumeration."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wenet_uio.families.transducer.conf import ConvPredictorConf, JointConf, RnnPredictorConf
from wenet_uio.families.transducer.joint import TransducerJoint
from wenet_uio.families.transducer.predictor import PREDICTORS
from wenet_uio.families.transducer.rnnt_beam import rnnt_beam_search
from wenet_uio.families.transducer.rnnt_greedy import MAX_TOKENS_A_FRAME, rnnt_greedy_search

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


def exhaustive(model, frames, ctc, weight) -> dict[tuple[int, ...], float]:
    """Probability of each token sequence: the sum over all ways to assign its tokens to different
    frames.
    """
    vocab = model.joint.ffn_out.out_features
    result: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(vocab), repeat=len(frames)):
        score, tokens = 0.0, ()
        for t, (frame, unit) in enumerate(zip(frames, path, strict=True)):
            log_probs = mixed(
                scores_after(model, tokens, frame), None if ctc is None else ctc[t], weight
            )
            score += log_probs[unit].item()
            tokens += (unit,) if unit != model.blank else ()
        result[tokens] = np.logaddexp(result.get(tokens, -np.inf), score)
    return result


def plain(model, frames, beam) -> list[tuple[tuple[int, ...], float]]:
    """The beam search with a dictionary instead of tensors."""
    kept = {(): 0.0}
    for frame in frames:
        ways: dict[tuple[int, ...], float] = {}
        for tokens, score in kept.items():
            for unit, value in enumerate(scores_after(model, tokens, frame).tolist()):
                to = tokens if unit == model.blank else (*tokens, unit)
                ways[to] = np.logaddexp(ways.get(to, -np.inf), score + value)
        kept = dict(sorted(ways.items(), key=lambda item: -item[1])[:beam])
    return list(kept.items())


@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn", "conv"])
@pytest.mark.parametrize("weight", [1.0, 0.6])
def test_a_beam_wider_than_all_sequences_equals_enumeration(kind, weight):
    model = make(3, seed=1, kind=kind)
    encoder_out = torch.randn(2, 4, DIM)
    ctc = torch.randn(2, 4, 3).log_softmax(dim=2) if weight < 1 else None
    nbests = rnnt_beam_search(model, encoder_out, torch.tensor([4, 3]), 31, ctc, weight)
    for row, frames in enumerate((4, 3)):
        expected = exhaustive(
            model, encoder_out[row, :frames], None if ctc is None else ctc[row], weight
        )
        assert {hypothesis.tokens for hypothesis in nbests[row]} == set(expected)
        for hypothesis in nbests[row]:
            assert hypothesis.score == pytest.approx(expected[hypothesis.tokens], abs=1e-4)
        scores = [hypothesis.score for hypothesis in nbests[row]]
        assert scores == sorted(scores, reverse=True)
        assert sum(map(np.exp, scores)) == pytest.approx(1.0, abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 3, 7])
def test_a_narrow_beam_equals_a_plain_search(beam):
    for seed in range(5):
        model = make(6, seed)
        encoder_out = 2 * torch.randn(3, 9, DIM)
        lengths = [9, 1, 6]
        nbests = rnnt_beam_search(model, encoder_out, torch.tensor(lengths), beam)
        for row, frames in enumerate(lengths):
            expected = plain(model, encoder_out[row, :frames], beam)
            assert [hypothesis.tokens for hypothesis in nbests[row]] == [
                tokens for tokens, _ in expected
            ]
            assert [hypothesis.score for hypothesis in nbests[row]] == pytest.approx(
                [score for _, score in expected], abs=1e-3
            )
            for hypothesis in nbests[row]:
                assert len(hypothesis.frames) == len(hypothesis.tokens)
                assert list(hypothesis.frames) == sorted(set(hypothesis.frames))
                assert all(0 <= frame < frames for frame in hypothesis.frames)
                for place, (token, frame) in enumerate(
                    zip(hypothesis.tokens, hypothesis.frames, strict=True)
                ):
                    sure = scores_after(model, hypothesis.tokens[:place], encoder_out[row, frame])[
                        token
                    ].exp()
                    assert hypothesis.confidences[place] == pytest.approx(sure.item(), abs=1e-4)


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
