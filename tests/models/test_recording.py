"""One pass over a recording of any length: the frames of the whole, in memory that does not
grow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from wenet_uio.models import ASRModel, recording
from wenet_uio.models.recording import RecordingEncoder, one_pass_obstacle

ROTARY = {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "conformer": ("conformer", {"cnn_module_kernel": 7}),
    "rotary conformer": (
        "conformer",
        {"cnn_module_kernel": 7, "input_layer": "dwconv2d8", **ROTARY},
    ),
    "causal conformer": ("conformer", {"cnn_module_kernel": 8, "causal": True}),
    "conformer without convolutions": ("conformer", {"use_cnn_module": False}),
    "normalised after": ("conformer", {"cnn_module_kernel": 7, "normalize_before": False}),
    "transformer": ("transformer", {"linear_units": 32}),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few frames, so that short audio has several."""
    monkeypatch.setattr(recording, "PIECE", 8)


def in_parts(model: ASRModel, feats: torch.Tensor, size: int) -> torch.Tensor:
    """Encode features (1, T, F) that arrive `size` frames at a time."""
    encoder = RecordingEncoder(model.encoder)
    parts = [encoder.accept(part, last=False) for part in feats.split(size, dim=1)]
    return torch.cat([*parts, encoder.accept(feats[:, :0], last=True)], dim=1)


@pytest.mark.third
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("context", [(3, 2), (0, 0), (0, 5), (20, 1), (2, 11)])
def test_frames_are_those_of_the_whole(
    make_encoder_model: Callable[..., ASRModel], kind: str, context: tuple[int, int]
) -> None:
    encoder, conf = KINDS[kind]
    model = make_encoder_model(encoder, {**conf, "att_context_size": list(context)}).double().eval()
    for frames in (14, 15, 305):
        feats = torch.randn(1, frames, 40, dtype=torch.float64)
        with torch.no_grad():
            expected, lengths = model.encode(feats, torch.tensor([frames]))
            for size in (7, 1000):
                found = in_parts(model, feats, size)
                assert found.size(1) == lengths[0]
                torch.testing.assert_close(found, expected[:, : lengths[0]], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "conf", "obstacle"),
    [
        ("conformer", {"att_context_size": [4, 4]}, ""),
        (
            "conformer",
            {"att_context_size": [4, -1]},
            "train with two limits of encoder_conf.att_context_size",
        ),
        ("conformer", {}, "train with two limits of encoder_conf.att_context_size"),
        (
            "transformer",
            {"att_context_size": [4, 4], "input_layer": "conv1d2"},
            "conv1d2 pads each chunk with zeros",
        ),
        ("squeezeformer", {}, "not a transformer or conformer"),
        ("zipformer", {}, "not a transformer or conformer"),
        ("branchformer", {}, "not a transformer or conformer"),
    ],
)
def test_encoders_that_cannot_do_it_say_why(
    make_encoder_model: Callable[..., ASRModel], kind: str, conf: dict[str, Any], obstacle: str
) -> None:
    encoder = make_encoder_model(kind, conf).encoder
    found = one_pass_obstacle(encoder)
    assert found.endswith(obstacle)
    assert bool(found) == bool(obstacle)
    if obstacle:
        with pytest.raises(ValueError, match=obstacle):
            RecordingEncoder(encoder)
