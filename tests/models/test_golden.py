"""With the weights of WeNet's models, our models compute the numbers of WeNet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from wenet_uio.config import load_config
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.decoder import reversed_hypotheses
from wenet_uio.models.masks import length_mask

MODELS = (
    "transformer",
    "conformer",
    "conformer_conv2d6",
    "conformer_conv2d8",
    "u2pp_conformer",
    "branchformer",
    "e_branchformer",
    "squeezeformer",
)
TOLERANCE = 1e-4

# Without a given chunk size, WeNet draws one in evaluation mode too. The golden numbers of the
# model with dynamic chunks come from these sizes: they reproduce the numbers exactly, and no others
# do. Other models have full context.
CHUNK_OF_ENCODER_OUT = {"u2pp_conformer": 6}
CHUNK_OF_LOSSES = {"u2pp_conformer": 15}


@dataclass
class Golden:
    name: str
    model: ASRModel
    state: dict[str, torch.Tensor]
    expected: dict

    @property
    def valid(self) -> torch.Tensor:
        """(B, T') True within the encoder's lengths."""
        return length_mask(
            self.expected["encoder_out_lengths"], self.expected["encoder_out"].size(1)
        )


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest, golden: Path, monkeypatch: pytest.MonkeyPatch) -> Golden:
    return _load(golden / request.param, monkeypatch)


@pytest.fixture
def u2pp(golden: Path, monkeypatch: pytest.MonkeyPatch) -> Golden:
    return _load(golden / "u2pp_conformer", monkeypatch)


def _load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Golden:
    monkeypatch.chdir(folder)
    model = build_model(load_config("train.yaml", ["mask_padding=false"]))
    state = torch.load("final.pt", weights_only=True)
    model.load_state_dict(state)
    return Golden(folder.name, model.eval(), state, torch.load("golden.pt", weights_only=True))


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_parameters_have_wenets_names_and_shapes(case: Golden) -> None:
    ours = {name: tensor.shape for name, tensor in case.model.state_dict().items()}
    assert ours == {name: tensor.shape for name, tensor in case.state.items()}


@torch.no_grad()
def test_encoder_and_ctc_outputs_equal_wenets(case: Golden) -> None:
    chunk = CHUNK_OF_ENCODER_OUT.get(case.name, -1)
    encoder_out, lengths = case.model.encode(
        case.expected["feats"], case.expected["feats_lengths"], chunk
    )
    assert torch.equal(lengths, case.expected["encoder_out_lengths"])
    assert_close(encoder_out[case.valid], case.expected["encoder_out"][case.valid])
    assert_close(
        case.model.ctc_log_probs(encoder_out)[case.valid],
        case.expected["ctc_log_probs"][case.valid],
    )


@torch.no_grad()
def test_decoder_outputs_equal_wenets(case: Golden) -> None:
    target, lengths = case.expected["target"], case.expected["target_lengths"] + 1
    tokens = torch.cat(
        (torch.full((4, 1), case.model.sos), target.masked_fill(target < 0, case.model.eos)), dim=1
    )
    backward = reversed_hypotheses(tokens, lengths, case.model.eos)
    left, right = case.model.decoder(
        case.expected["encoder_out"],
        case.valid.unsqueeze(1),
        tokens,
        lengths,
        backward,
        case.model.reverse_weight,
    )
    scored = length_mask(lengths, tokens.size(1))
    assert_close(left.log_softmax(2)[scored], case.expected["decoder_log_probs"][scored])
    if "right_decoder_log_probs" in case.expected:
        assert_close(right.log_softmax(2)[scored], case.expected["right_decoder_log_probs"][scored])


@torch.no_grad()
def test_losses_equal_wenets(case: Golden) -> None:
    encoder = case.model.encoder
    encoder.traits = replace(encoder.traits, static_chunk_size=CHUNK_OF_LOSSES.get(case.name, 0))
    names = ("feats", "feats_lengths", "target", "target_lengths")
    losses = case.model(*(case.expected[name] for name in names))
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(
        case.expected["losses"], abs=TOLERANCE, rel=TOLERANCE
    )


@torch.no_grad()
@pytest.mark.parametrize(("chunk", "left"), [(4, -1), (8, 2), (16, 4)])
def test_chunk_masks_equal_wenets(u2pp: Golden, chunk: int, left: int) -> None:
    encoder_out, _ = u2pp.model.encode(
        u2pp.expected["feats"], u2pp.expected["feats_lengths"], chunk, left
    )
    assert_close(
        encoder_out[u2pp.valid], u2pp.expected[f"encoder_out_chunk{chunk}_left{left}"][u2pp.valid]
    )


def test_weights_load_in_both_directions(case: Golden, tmp_path: Path) -> None:
    torch.save(case.model.state_dict(), tmp_path / "ours.pt")
    ours = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert set(ours) == set(case.state)
    assert all(torch.equal(ours[name], case.state[name]) for name in ours)
