"""The transducer's loss in pieces: equal to torchaudio's, exact at its edges, never as large as all
scores.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torchaudio.functional import rnnt_loss

from wenet_uio.families.transducer import rnnt_loss as module
from wenet_uio.families.transducer.conf import JointConf
from wenet_uio.families.transducer.joint import TransducerJoint
from wenet_uio.families.transducer.rnnt_loss import lattice_log_probs, rnnt_losses

DIM, VOCAB = 6, 11
FRAMES, TOKENS = torch.tensor([9, 1, 4, 7, 2]), torch.tensor([3, 0, 6, 0, 1])


def make(frames=FRAMES, tokens=TOKENS, room=(0, 0), dtype=torch.float32, **joint):
    """Joint network, frames, predictor outputs and labels; `room` is padding beyond the longest."""
    torch.manual_seed(0)
    network = TransducerJoint(VOCAB, DIM, DIM, JointConf(join_dim=8, **joint)).to(dtype)
    encoder_out = 3 * torch.randn(len(frames), int(frames.max()) + room[0], DIM, dtype=dtype)
    predicted = 3 * torch.randn(len(frames), int(tokens.max()) + room[1] + 1, DIM, dtype=dtype)
    labels = torch.randint(1, VOCAB, (len(frames), predicted.size(1) - 1))
    return network, encoder_out.requires_grad_(), predicted.requires_grad_(), labels


def losses_of(network, encoder_out, predicted, labels, frames=FRAMES, tokens=TOKENS):
    after = pad(labels, (0, 1))
    units = torch.stack((torch.zeros_like(after), after), dim=2)
    return rnnt_losses(
        lattice_log_probs(network, encoder_out, predicted, units, (frames, tokens)), frames, tokens
    )


def torchaudios(network, encoder_out, predicted, labels, frames=FRAMES, tokens=TOKENS):
    scores = network(
        encoder_out[:, : frames.max()].unsqueeze(2), predicted[:, : tokens.max() + 1].unsqueeze(1)
    )
    labels = labels[:, : tokens.max()].int().contiguous()
    return rnnt_loss(scores, labels, frames.int(), tokens.int(), blank=0, reduction="none")


def gradients(losses, network, *inputs):
    weights = torch.linspace(0.5, 1.5, len(losses), dtype=losses.dtype)
    return torch.autograd.grad((losses * weights).sum(), [*inputs, *network.parameters()])


@pytest.fixture
def piece(monkeypatch):
    return lambda size: monkeypatch.setattr(module, "PIECE", size)


@pytest.mark.parametrize(
    "size", [1, 3 * 7 * VOCAB, 20 * 7 * VOCAB, 1 << 25], ids=["frame", "3 rows", "20 rows", "whole"]
)
@pytest.mark.parametrize(
    "joint", [{}, {"hat_joint": True, "dropout_rate": 0.0}], ids=["additive", "hat"]
)
def test_losses_and_gradients_equal_torchaudios(size, joint, piece):
    piece(size)
    network, encoder_out, predicted, labels = make(**joint)
    found, expected = (
        of(network, encoder_out, predicted, labels) for of in (losses_of, torchaudios)
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(
        gradients(found, network, encoder_out, predicted),
        gradients(expected, network, encoder_out, predicted),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 1 << 25])
def test_padding_changes_nothing_and_has_no_gradient(size, piece):
    piece(size)
    network, encoder_out, predicted, labels = make(room=(3, 2))
    found = losses_of(network, encoder_out, predicted, labels)
    expected = torchaudios(network, encoder_out, predicted, labels)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    by_frame, by_place, *_ = gradients(found, network, encoder_out, predicted)
    for row, (frames, tokens) in enumerate(zip(FRAMES.tolist(), TOKENS.tolist(), strict=True)):
        assert not by_frame[row, frames:].any()
        assert not by_place[row, tokens + 1 :].any()
        assert by_frame[row, :frames].any(dim=1).all()
        assert by_place[row, : tokens + 1].any(dim=1).all()


def test_lengths_that_the_host_may_not_read_give_the_same(monkeypatch, piece):
    piece(50 * VOCAB)
    batch = make(room=(3, 2))
    expected = losses_of(*batch)
    monkeypatch.setattr(module, "_longest", lambda _, size: size)
    torch.testing.assert_close(losses_of(*batch), expected)


@pytest.mark.parametrize("frames", [1, 5])
def test_a_batch_of_empty_texts_is_all_blank(frames):
    lengths, none = torch.full((2,), frames), torch.zeros(2, dtype=torch.int64)
    network, encoder_out, predicted, labels = make(lengths, none)
    assert labels.shape == (2, 0)
    found = losses_of(network, encoder_out, predicted, labels, lengths, none)
    torch.testing.assert_close(
        found, -network(encoder_out, predicted).log_softmax(dim=2)[:, :, 0].sum(dim=1)
    )


def test_the_gradient_of_the_paths_is_that_of_differences():
    torch.manual_seed(0)
    log_probs = torch.randn(5, 9, 7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda each: rnnt_losses(each, FRAMES, TOKENS), log_probs)


def test_long_and_improbable_paths_are_exact():
    torch.manual_seed(0)
    log_probs = torch.randn(1, 300, 41, 2, dtype=torch.float64) - 1
    log_probs[:, 100:150, :, 0] = -1e4  # blank is next to impossible
    log_probs[:, :, 20, 1] = -1e5
    alpha = [0.0] + [-math.inf] * 40
    for frame in log_probs[0].tolist():
        for place in range(40):
            alpha[place + 1] = float(np.logaddexp(alpha[place + 1], alpha[place] + frame[place][1]))
        alpha = [score + blank for score, (blank, _) in zip(alpha, frame, strict=True)]
    found = rnnt_losses(log_probs.float(), torch.tensor([300]), torch.tensor([40]))
    assert found.item() == pytest.approx(-alpha[40], rel=1e-6)


def test_no_tensor_has_the_scores_of_all_units(piece):
    piece(4000)
    frames, tokens = torch.tensor([40, 30, 40]), torch.tensor([10, 9, 2])
    network, encoder_out, predicted, labels = make(frames, tokens)
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(
                largest,
                *(each.numel() for each in tree_iter(out) if isinstance(each, torch.Tensor)),
                0,
            )
            return out

    with Sizes():
        losses = losses_of(network, encoder_out, predicted, labels, frames, tokens)
        gradients(losses, network, encoder_out, predicted)
    assert 2000 < largest <= 4000  # all scores: 3 * 40 * 11 * VOCAB = 14,520


@pytest.mark.parametrize("size", [1, 1 << 25])
def test_dropout_of_a_hat_joint_is_the_same_in_the_backward_pass(size, piece):
    piece(size)
    network, encoder_out, predicted, labels = make(
        dtype=torch.float64, hat_joint=True, dropout_rate=0.5
    )
    direction = torch.randn_like(encoder_out)

    def loss_at(distance):
        torch.manual_seed(7)
        return losses_of(network, encoder_out + distance * direction, predicted, labels).sum()

    (gradient,) = torch.autograd.grad(loss_at(0.0), encoder_out)
    slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6
    torch.testing.assert_close((gradient * direction).sum(), slope.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 1 << 25])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_stays_in_fp32_under_autocast(dtype, size, piece):
    piece(size)
    network, encoder_out, predicted, labels = make()
    exact = losses_of(network, encoder_out, predicted, labels)
    with torch.autocast("cpu", dtype):
        assert network(encoder_out[:, 0], predicted[:, 0]).dtype == dtype
        losses = losses_of(network, encoder_out, predicted, labels)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, exact, rtol=0.02, atol=0.1)
    pairs = zip(
        gradients(losses, network, encoder_out, predicted),
        gradients(exact, network, encoder_out, predicted),
        strict=True,
    )
    for found, expected in pairs:
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.05 * expected.norm()
