"""CTC loss, loss with label smoothing, and their weighted sum."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import kl_div

from wenet_uio.models.ctc import CTC, apply_blank_penalty
from wenet_uio.models.losses import LabelSmoothingLoss, LossWeights


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("normalize_length", [False, True])
def test_label_smoothing_is_the_divergence_from_smoothed_labels(smoothing, normalize_length):
    logits, target = torch.randn(2, 3, 5), torch.tensor([[1, 2, 0], [4, -1, -1]])
    smoothed = torch.full((2, 3, 5), smoothing / 4)
    smoothed.scatter_(2, target.clamp(min=0).unsqueeze(2), 1 - smoothing)
    by_token = kl_div(logits.log_softmax(2), smoothed, reduction="none").sum(2)
    expected = by_token[target >= 0].sum() / (4 if normalize_length else 2)
    found = LabelSmoothingLoss(5, -1, smoothing, normalize_length)(logits, target)
    torch.testing.assert_close(found, expected)


def test_ctc_loss_of_an_utterance_that_is_too_short_is_zero():
    torch.manual_seed(0)
    ctc = CTC(6, 8, blank=0)
    encoder_out = torch.randn(2, 4, 8)
    both = ctc(
        encoder_out,
        torch.tensor([4, 2]),
        torch.tensor([[1, 2, -1], [3, 3, 3]]),
        torch.tensor([2, 3]),
    )
    alone = ctc(encoder_out[:1], torch.tensor([4]), torch.tensor([[1, 2]]), torch.tensor([2]))
    torch.testing.assert_close(both, alone / 2)


def test_smoothed_ctc_adds_the_divergence_from_the_uniform_distribution():
    torch.manual_seed(0)
    plain, smooth = CTC(6, 8, blank=0).double(), CTC(6, 8, blank=0).double()
    smooth.load_state_dict(plain.state_dict())
    smooth.smoothing = 0.1
    encoder_out, lengths = torch.randn(2, 5, 8).double(), torch.tensor([5, 3])
    batch = (encoder_out, lengths, torch.tensor([[1, 2], [3, -1]]), torch.tensor([2, 1]))
    posteriors = [
        row[:frames].exp()
        for row, frames in zip(plain.log_softmax(encoder_out), lengths, strict=True)
    ]
    divergence = (
        sum(kl_div(torch.full_like(row, 1 / 6).log(), row, reduction="sum") for row in posteriors)
        / 2
    )
    torch.testing.assert_close(
        smooth(*batch), 0.9 * plain(*batch) + 0.1 * divergence, check_dtype=False
    )


@pytest.mark.parametrize("penalty", [2.0, -2.0])
def test_a_penalty_changes_only_the_blank_and_in_its_own_direction(penalty):
    torch.manual_seed(0)
    ctc = CTC(6, 8, blank=2)
    encoder_out = torch.randn(1, 3, 8)
    plain, changed = ctc.log_softmax(encoder_out), ctc.log_softmax(encoder_out, penalty)
    shift = changed - plain
    torch.testing.assert_close(shift[:, :, 2] + penalty, shift[:, :, 0])
    assert ((changed < plain)[:, :, 2] == (penalty > 0)).all()
    torch.testing.assert_close(apply_blank_penalty(plain, 2, penalty), changed)
    assert apply_blank_penalty(plain, 2, 0.0) is plain


def _batch():
    return (
        torch.randn(2, 80, 40),
        torch.tensor([80, 70]),
        torch.tensor([[1, 2, 3], [4, -1, -1]]),
        torch.tensor([3, 1]),
    )


@pytest.mark.parametrize("decoder", ["transformer", "bitransformer"])
def test_text_without_audio_trains_only_the_decoder(make_model, decoder):
    model = make_model(decoder=decoder, model_conf={"ctc_weight": 0.3})
    model.weights = LossWeights(text=0.5)
    _, _, target, target_lengths = _batch()
    losses = model(torch.zeros(2, 0, 40), torch.zeros(2, dtype=torch.int64), target, target_lengths)
    assert losses["loss_ctc"] is None
    torch.testing.assert_close(losses["loss"], 0.5 * losses["loss_att"])
    losses["loss"].backward()
    assert all(weight.grad is None for weight in model.encoder.parameters())
    assert model.decoder.state_dict().keys()
    assert any(
        weight.grad is not None and weight.grad.any() for weight in model.decoder.parameters()
    )


def test_the_loss_of_texts_without_audio_is_the_mean_of_their_losses(make_model):
    model = make_model()
    _, _, target, target_lengths = _batch()

    def loss(rows):
        targets = target[rows, : int(target_lengths[rows].max())]
        return model(
            torch.zeros(len(targets), 0, 40),
            0 * target_lengths[rows],
            targets,
            target_lengths[rows],
        )["loss"]

    torch.testing.assert_close(loss(slice(2)), (loss(slice(1)) + loss(slice(1, 2))) / 2)


def test_the_loss_is_the_weighted_sum_of_its_parts(make_model):
    batch = _batch()
    losses = make_model(model_conf={"ctc_weight": 0.3})(*batch)
    torch.testing.assert_close(losses["loss"], 0.3 * losses["loss_ctc"] + 0.7 * losses["loss_att"])
    assert make_model(model_conf={"ctc_weight": 0.0})(*batch)["loss_ctc"] is None
    only_ctc = make_model(model_conf={"ctc_weight": 1.0})(*batch)
    assert only_ctc["loss_att"] is None
    torch.testing.assert_close(only_ctc["loss"], only_ctc["loss_ctc"])


@pytest.mark.parametrize(
    ("ctc_weight", "names"),
    [
        (0.0, {"loss", "loss_att", "th_accuracy"}),
        (0.3, {"loss", "loss_att", "th_accuracy", "loss_ctc"}),
        (1.0, {"loss", "loss_ctc"}),
    ],
)
def test_loss_names_leave_out_losses_with_weight_0(make_model, ctc_weight, names):
    assert set(make_model(model_conf={"ctc_weight": ctc_weight}).loss_names) == names


def test_every_parameter_learns(make_model):
    model = make_model().train()
    model(*_batch())["loss"].backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_few_steps_fit_a_batch(make_model):
    model = make_model(encoder_conf={"dropout_rate": 0.0, "positional_dropout_rate": 0.0}).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batch = _batch()
    losses = []
    for _ in range(30):
        loss = model(*batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_bfloat16_autocast_trains(make_model):
    model = make_model().train()
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(*_batch())
    assert losses["loss"].dtype == torch.float32
    losses["loss"].backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
