"""Losses of two augmented views (CR-CTC): one doubled pass equals two plain passes."""

from __future__ import annotations

import math

import pytest
import torch

from wenet_uio.config import ConfigError, load_config, parse_config, save_config
from wenet_uio.models import build_model

WIDTH, VOCAB = 16, 7
SMALL = {"attention_heads": 2, "linear_units": 32, "num_blocks": 2}
ENCODER = {**SMALL, "output_size": WIDTH, "cnn_module_kernel": 7, "cnn_module_norm": "layer_norm"}
PREDICTOR = {
    "embed_size": 8,
    "output_size": 8,
    "hidden_size": 8,
    "num_layers": 1,
    "embed_dropout": 0,
    "dropout": 0,
}
MODELS = {
    "ctc": {"model_conf": {"ctc_weight": 1.0}},
    "ctc and attention": {"model_conf": {"ctc_weight": 0.3, "lsm_weight": 0.1}},
    "transducer": {
        "model": "transducer",
        "model_conf": {"transducer_weight": 0.7, "ctc_weight": 0.2, "attention_weight": 0.1},
        "predictor_conf": PREDICTOR,
        "joint_conf": {"join_dim": 8},
    },
}


def make(**keys):
    values = {
        "encoder": "conformer",
        "encoder_conf": ENCODER,
        "decoder": "transformer",
        "decoder_conf": SMALL,
        "tokenizer_conf": {"special_tokens": {"<sos>": VOCAB - 1, "<eos>": VOCAB - 1}},
        "input_dim": 20,
        "output_dim": VOCAB,
        "cr_loss_scale": 0.2,
        **keys,
    }
    torch.manual_seed(1)
    return build_model(parse_config(values, "test"))


def views_of_a_batch():
    generator = torch.Generator().manual_seed(2)
    first = torch.randn(3, 80, 20, generator=generator)
    second = first * (torch.rand(first.shape, generator=generator) > 0.2)
    lengths = torch.tensor([80, 61, 3])  # the last is too short for an encoder frame
    target = torch.tensor([[1, 2, 3], [4, 4, -1], [5, -1, -1]])
    return first, second, (lengths, target, torch.tensor([3, 2, 1]))


def doubled(first, second, others):
    return torch.cat((first, second)), *(torch.cat((each, each)) for each in others)


def divergence(model, one, other, lengths) -> float:
    """Sum over the frames of the divergence from the posteriors of the other view, from its
    definition.
    """
    (ours, valid), (theirs, _) = (model.encode(feats, lengths) for feats in (one, other))
    ours, theirs = (model.ctc_log_probs(encoded).tolist() for encoded in (ours, theirs))
    return sum(
        math.exp(q) * (q - p)
        for row, other_row, frames in zip(ours, theirs, valid.tolist(), strict=True)
        for frame, other_frame in zip(row[:frames], other_row[:frames], strict=True)
        for p, q in zip(frame, other_frame, strict=True)
    )


@pytest.mark.parametrize("name", MODELS)
def test_one_pass_over_both_views_gives_the_losses_of_a_pass_over_each(name):
    model = make(**MODELS[name]).double().eval()
    first, second, others = views_of_a_batch()
    first, second = first.double(), second.double()
    plain = [model(feats, *others) for feats in (first, second)]
    both = model(*doubled(first, second, others), cr_weight=model.weights.views)
    means = {
        key: (plain[0][key] + plain[1][key]) / 2 for key in plain[0] if plain[0][key] is not None
    }
    pairs = ((first, second), (second, first))
    loss_cr = sum(divergence(model, *pair, others[0]) for pair in pairs) / 2 / len(first)
    assert both["loss_cr"].item() == pytest.approx(loss_cr, rel=1e-6)
    assert loss_cr > 0.01
    assert both["loss"].item() == pytest.approx(means.pop("loss").item() + 0.2 * loss_cr, rel=1e-6)
    for key, value in means.items():
        assert both[key].item() == pytest.approx(value.item(), rel=1e-6)


def test_the_posteriors_that_a_view_is_compared_with_get_no_gradient():
    model = make(model_conf={"ctc_weight": 1.0}).double().eval()
    first, second, (lengths, *labels) = views_of_a_batch()
    first, second = first.double(), second.double()
    model(*doubled(first, second, (lengths, *labels)), cr_weight=model.weights.views)[
        "loss_cr"
    ].backward()
    found = model.ctc.ctc_lo.weight.grad.clone()
    model.zero_grad()
    log_probs, frames = [], None
    for feats in (first, second):
        encoded, frames = model.encode(feats, lengths)
        log_probs.append(model.ctc_log_probs(encoded))
    for ours, theirs in (log_probs, log_probs[::-1]):
        apart = (theirs.detach().exp() * (theirs.detach() - ours)).sum(2)
        valid = torch.arange(apart.size(1)) < frames[:, None]
        (0.5 * (apart * valid).sum() / len(first)).backward(retain_graph=True)
    torch.testing.assert_close(model.ctc.ctc_lo.weight.grad, found, rtol=1e-4, atol=1e-6)


def test_views_that_are_equal_do_not_diverge():
    model = make(model_conf={"ctc_weight": 1.0}).eval()
    first, _, others = views_of_a_batch()
    assert (
        model(*doubled(first, first, others), cr_weight=model.weights.views)["loss_cr"].item() == 0
    )


def test_validation_has_one_view_and_no_divergence():
    model = make().eval()
    first, _, others = views_of_a_batch()
    losses = model(first, *others)
    assert "loss_cr" not in losses
    off = make(cr_loss_scale=0.0).eval()
    assert losses["loss"].item() == off(first, *others)["loss"].item()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_conf": {"ctc_weight": 0.0}}, "there is no CTC loss"),
        ({"dataset_conf": {"spec_aug": False}}, "the two views are equal"),
        (
            {"dataset_conf": {"spec_aug_conf": {"num_t_mask": 0, "num_f_mask": 0}}},
            "the two views are equal",
        ),
        (
            {
                "dataset_conf": {
                    "spec_aug": False,
                    "spec_sub": True,
                    "spec_sub_conf": {"num_t_sub": 0},
                }
            },
            "views are equal",
        ),
        (
            {"dataset_conf": {"batch_conf": {"batch_type": "static", "batch_size": 1}}},
            "do not fit batch_conf.batch_size",
        ),
        ({"model": "ctl_model", "encoder_conf": {"use_dynamic_chunk": True}}, "passes of one view"),
        ({"dataset_conf": {"views": {"number": 2}}}, "dataset_conf.views: this is no key"),
    ],
)
def test_a_config_without_two_different_views_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"cr_loss_scale": 0.2, **keys}, "test")


def test_a_saved_config_asks_for_the_same_views(tmp_path):
    config = parse_config({"cr_loss_scale": 0.2, "cr_time_mask_ratio": 2.0}, "test")
    save_config(config, tmp_path / "train.yaml")
    loaded = load_config(tmp_path / "train.yaml")
    assert loaded.model_dump() == config.model_dump()
    assert (loaded.dataset_conf.views.number, loaded.dataset_conf.views.time_mask_ratio) == (2, 2.0)
    one_view = load_config(tmp_path / "train.yaml", ["cr_loss_scale=0"])
    assert one_view.dataset_conf.views.number == 1
    assert "views" not in (tmp_path / "train.yaml").read_text()
