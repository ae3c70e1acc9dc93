"""att_context_size: each frame sees its neighbours only, and long audio takes little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from wenet_uio.models import ASRModel, attention
from wenet_uio.models.attention import attended_nearby, context_with_block
from wenet_uio.models.dropout import attended
from wenet_uio.models.masks import additive

ROTARY = {
    "pos_enc_layer_type": "rope_pos",
    "selfattention_layer_type": "rope_abs_selfattn",
    "n_kv_head": 1,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "conformer": ("conformer", {"cnn_module_kernel": 7}),
    "causal conformer": (
        "conformer",
        {"cnn_module_kernel": 8, "causal": True, "input_layer": "dwconv2d8"},
    ),
    "transformer": ("transformer", {"linear_units": 32}),
    "transformer with rotary positions": ("transformer", {"linear_units": 32, **ROTARY}),
}
CONTEXTS = [(3, 2), (0, 0), (0, 4), (7, 0), (-1, 2), (3, -1)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few queries, so that short audio has several."""
    monkeypatch.setattr(attention, "LEAST_BLOCK", 4)


def band(queries: int, keys: int, context: tuple[int, int]) -> torch.Tensor:
    """Mask (queries, keys): the keys that each query sees."""
    distance = torch.arange(keys) - torch.arange(keys - queries, keys).unsqueeze(1)
    left, right = (keys if limit < 0 else limit for limit in context)
    return (distance >= -left) & (distance <= right)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("queries", "keys"), [(23, 23), (1, 1), (4, 4), (5, 12), (8, 8)])
def test_blocks_give_what_attention_with_a_mask_gives(
    context: tuple[int, int], queries: int, keys: int
) -> None:
    query = torch.randn(2, 3, queries, 8)
    key, value = torch.randn(2, 2, 3, keys, 8)
    bias = torch.randn(2, 3, 1, keys)
    hidden = additive(band(queries, keys, context).unsqueeze(0), query.dtype)
    for more in (None, bias):
        expected = attended(query, key, value, hidden if more is None else hidden + more, 0.0)
        torch.testing.assert_close(
            attended_nearby(query, key, value, more, context_with_block(context), 0.0), expected
        )


def pair(
    make: Callable[..., ASRModel], kind: str, context: tuple[int, int]
) -> tuple[ASRModel, ASRModel]:
    """A model with `context`, and one with the same weights whose attention is full beneath a
    mask.
    """
    encoder, conf = KINDS[kind]
    limited = make(encoder, {**conf, "att_context_size": list(context)})
    masked = make(encoder, conf)
    masked.load_state_dict(limited.state_dict())

    def mask(valid: torch.Tensor, _chunk: int, _left: int) -> torch.Tensor:
        return valid.unsqueeze(1) & band(valid.size(1), valid.size(1), context)

    masked.encoder._attention_mask = mask  # type: ignore[method-assign]
    return limited, masked


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_gives_the_frames_and_gradients_of_full_attention_with_a_mask(
    make_encoder_model: Callable[..., ASRModel], kind: str
) -> None:
    limited, masked = pair(make_encoder_model, kind, (3, 2))
    feats, lengths = torch.randn(2, 190, 40, dtype=torch.float64), torch.tensor([190, 131])
    gradients = []
    for model in (limited.double(), masked.double()):
        found, found_lengths = model.encode(feats, lengths)
        found.square().sum().backward()
        gradients.append(
            (
                found,
                *(weight.grad for weight in model.encoder.parameters() if weight.grad is not None),
            )
        )
        assert found_lengths[0] == found.size(1) > 8
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@torch.no_grad()
def test_a_frame_sees_as_many_frames_as_the_layers_together(
    make_encoder_model: Callable[..., ASRModel],
) -> None:
    model = make_encoder_model(
        "transformer", {"linear_units": 32, "att_context_size": [3, 2], "input_layer": "linear"}
    )
    feats, lengths = torch.randn(1, 40, 40), torch.tensor([40])
    before, _ = model.encode(feats, lengths)
    feats[:, 20] += 1
    changed = (model.encode(feats, lengths)[0] - before).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.nonzero().flatten().tolist() == list(range(20 - 2 * 2, 20 + 2 * 3 + 1))


@torch.no_grad()
def test_the_memory_of_attention_does_not_grow_with_the_length(
    make_encoder_model: Callable[..., ASRModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_encoder_model("conformer", {"cnn_module_kernel": 7, "att_context_size": [16, 8]})
    sizes: list[tuple[int, int]] = []

    def noted(query: torch.Tensor, key: torch.Tensor, *others: Any) -> torch.Tensor:
        sizes.append((query.size(2), key.size(2)))
        return attended(query, key, *others)

    monkeypatch.setattr(attention, "attended", noted)
    for frames in (200, 2000):
        model.encode(torch.randn(1, frames, 40), torch.tensor([frames]))
    assert max(sizes) == (24, 16 + 24 + 8)


@torch.no_grad()
@pytest.mark.parametrize(
    "layer", ["conv2d", "conv2d6", "dwconv2d8", "conv1d2", "firered_conv2d4", "stack_n_frames"]
)
def test_an_input_layer_gives_the_same_frames_in_pieces(
    make_encoder_model: Callable[..., ASRModel], layer: str
) -> None:
    embed = make_encoder_model(
        "conformer", {"input_layer": layer, "cnn_module_kernel": 7}
    ).encoder.embed
    for frames in (15, 16, 17, 97, 200):
        feats = torch.randn(2, frames, 40)
        whole = embed.pos_enc(embed.project(feats))[0]
        embed.piece = min(embed.piece, 3)
        torch.testing.assert_close(embed(feats)[0], whole, atol=1e-5, rtol=1e-5)
