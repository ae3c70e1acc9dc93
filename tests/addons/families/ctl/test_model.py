"""The model with a contrastive loss between chunks and full context."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

from tests.models.test_golden2 import CTL, TOLERANCE, Golden, assert_hypotheses
from wenet_uio.addons.families.ctl.model import CtlModel
from wenet_uio.config import ConfigError, parse_config
from wenet_uio.models import ASRModel, build_model

CONF = {"linear_units": 32, "use_dynamic_chunk": True}
BATCH = (
    torch.randn(3, 203, 40),
    torch.tensor([203, 120, 7]),  # the last utterance has one encoder frame
    torch.tensor([[1, 2], [4, -1], [3, -1]]),
    torch.tensor([2, 1, 1]),
)


@pytest.fixture(params=CTL)
def case(request: pytest.FixtureRequest, golden2: Path) -> Golden:
    return Golden(golden2 / request.param)


def make(
    model_conf: dict[str, Any], encoder: str = "dual_transformer", **encoder_conf: Any
) -> ASRModel:
    torch.manual_seed(0)
    small = {"output_size": 16, "attention_heads": 2, "num_blocks": 2, **CONF}
    values = {
        "model": "ctl_model",
        "model_conf": {"n_negatives": 5, **model_conf},
        "encoder": encoder,
        "encoder_conf": {**small, **encoder_conf},
        "decoder": "transformer",
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
        "tokenizer_conf": {"special_tokens": {"<sos>": 11, "<eos>": 11}},
        "input_dim": 40,
        "output_dim": 12,
    }
    return build_model(parse_config(values, "test"))


def assert_losses(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name in ("loss", "loss_full", "loss_chunk", "loss_ctl"):
        assert found[name].item() == pytest.approx(
            float(expected[name]), abs=TOLERANCE, rel=TOLERANCE
        ), name


def test_losses_gradients_and_draws_equal_wenets(
    case: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, expected = case.model, case.expected
    assert isinstance(model, CtlModel)
    model.encoder.traits = replace(model.encoder.traits, dynamic_chunks=False, static_chunk_size=8)
    model.train()
    torch.manual_seed(11)
    losses = model(*case.batch)
    assert_losses(losses, expected["losses_train"])
    losses["loss"].backward()
    norms = expected["losses_train"]["grad_norms"]
    for name, weight in model.named_parameters():
        if float(norms.get(name, 0.0)) > 1e-5:
            assert weight.grad is not None, name
            assert weight.grad.norm().item() == pytest.approx(float(norms[name]), rel=1e-3), name
    frames = expected["encoder_out"].size(1)
    given = expected["losses"]["neg_idxs"] - frames * torch.arange(4).unsqueeze(1)
    torch.manual_seed(11)
    assert torch.equal(model.draw_negatives(expected["encoder_out_lengths"], frames), given)
    monkeypatch.setattr(model, "draw_negatives", lambda *_: given)
    with torch.no_grad():
        assert_losses(model.eval()(*case.batch), expected["losses"])


@torch.no_grad()
def test_hypotheses_equal_wenets(case: Golden) -> None:
    feats = case.batch[:2]
    assert_hypotheses(case, feats, case.expected["hyps_chunk-1"])
    assert_hypotheses(case, feats, case.expected["hyps_chunk8"], decoding_chunk_size=8)


@torch.no_grad()
def test_the_contrastive_loss_is_the_cross_entropy_of_cosines() -> None:
    model = make({"logit_temp": 0.3})
    assert isinstance(model, CtlModel)
    chunk, full, lengths = torch.randn(2, 6, 16), torch.randn(2, 6, 16), torch.tensor([6, 1])
    drawn = model.draw_negatives(lengths, 6)
    expected = torch.tensor(0.0)
    for frame in range(6):
        others = drawn[0, 5 * frame : 5 * frame + 5]
        assert frame not in others.tolist()
        cosines = (
            cosine_similarity(chunk[0, frame], full[0, [frame, *others.tolist()]], dim=1) / 0.3
        )
        expected += cosines.logsumexp(0) - cosines[0]
    # The only frame of the second utterance has no other frame to be taken for: its loss is 0.
    torch.testing.assert_close(model.contrastive_loss(chunk, full, lengths, drawn), expected / 7)


def test_every_weight_learns_also_with_an_utterance_of_one_frame() -> None:
    model = make({}, "dual_conformer", causal=True).train()
    losses = model(*BATCH)
    assert losses["loss"].item() == pytest.approx(
        sum(losses[name].item() for name in ("loss_full", "loss_chunk", "loss_ctl"))
    )
    losses["loss"].backward()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in weights)


@torch.no_grad()
def test_validation_has_chunks_and_gives_the_same_loss_twice() -> None:
    model = make({}).eval()
    one, two = model(*BATCH), model(*BATCH)
    assert one["loss"] == two["loss"]
    assert one["loss_full"] != one["loss_chunk"]
    assert {name for name, loss in one.items() if loss is not None} == set(model.loss_names)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_loss_is_the_weighted_sum_of_its_parts(weight: float) -> None:
    model = make({"ctc_weight": weight, "ctl_weight": 2.0}).eval()
    losses = model(*BATCH)
    parts = [each * losses[name] for name, each in model.loss_weights().items() if each]
    torch.testing.assert_close(losses["loss"], torch.stack(parts).sum())
    assert {name for name, loss in losses.items() if loss is not None} == set(model.loss_names)


@torch.no_grad()
def test_without_negatives_there_is_no_contrastive_loss() -> None:
    model = make({"n_negatives": 0}).eval()
    losses = model(*BATCH)
    assert losses["loss_ctl"] is None
    assert losses["loss"] == losses["loss_full"] + losses["loss_chunk"]


@torch.no_grad()
def test_text_without_audio_trains_the_decoder_alone() -> None:
    losses = make({}).train()(BATCH[0][:, :0], *BATCH[1:])
    assert losses["loss"] == losses["loss_att"]
    assert losses["loss_ctl"] is losses["loss_full"] is losses["loss_chunk"] is None


def test_an_encoder_without_chunks_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match="^test: encoder_conf.use_dynamic_chunk: false: ctl_model compares chunks with",
    ):
        make({}, use_dynamic_chunk=False)


def test_a_dual_conformer_takes_the_keys_of_wenets() -> None:
    with pytest.raises(ConfigError, match="encoder_conf.conv_norm_eps: unknown key"):
        parse_config({"encoder": "dual_conformer", "encoder_conf": {"conv_norm_eps": 1e-5}}, "test")
    with pytest.raises(ConfigError, match="model_conf.logit_temp: .* greater than 0"):
        parse_config({"model": "ctl_model", "model_conf": {"logit_temp": 0}}, "test")
