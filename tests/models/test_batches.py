"""The numbers of an utterance do not depend on its batch: neither on other utterances nor on the padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from wenet_uio.models import ASRModel
from wenet_uio.models.build import ENCODERS
from wenet_uio.models.subsampling import INPUT_LAYERS

FEATURES = 40
UTTERANCES = 32
BRANCH = {"cgmlp_linear_units": 24, "cgmlp_conv_kernel": 7}
CAUSAL = {"causal": True, "use_dynamic_chunk": True}
SQUEEZE = {"encoder_dim": 16, "num_blocks": 4, "reduce_idx": 1, "recover_idx": 3, "cnn_module_kernel": 5}
MOE = {"mlp_type": "moe", "n_expert": 3}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {"use_dynamic_chunk": True}),
    "transformer with rotary positions": (
        "transformer",
        {"pos_enc_layer_type": "rope_pos", "selfattention_layer_type": "rope_abs_selfattn", "n_kv_head": 1},
    ),
    "transformer with experts": ("transformer", {**MOE, "normalize_before": False, "layer_norm_type": "rms_norm"}),
    "conformer": ("conformer", {"cnn_module_kernel": 7, "use_dynamic_chunk": True}),
    "conformer with layer norm": ("conformer", {"cnn_module_norm": "layer_norm", "normalize_before": False}),
    "conformer without bias": ("conformer", {"conv_bias": False, "cnn_module_kernel": 7}),
    "conformer with distances": (
        "conformer",
        {"selfattention_layer_type": "shaw_rel_selfattn", "pos_enc_layer_type": "no_pos"},
    ),
    "conformer with fixed chunks": ("conformer", {"cnn_module_kernel": 7, "static_chunk_size": 5}),
    "causal conformer": ("conformer", {**CAUSAL, "cnn_module_kernel": 8}),
    "branchformer": ("branchformer", {**BRANCH, "use_dynamic_chunk": True}),
    "branchformer with learned weights": ("branchformer", {**BRANCH, "merge_method": "learned_ave"}),
    "branchformer without attention": ("branchformer", {**BRANCH, "use_attn": False, "use_linear_after_conv": True}),
    "causal branchformer": ("branchformer", {**BRANCH, **CAUSAL}),
    "e_branchformer": ("e_branchformer", {**BRANCH, "merge_conv_kernel": 5, "use_dynamic_chunk": True}),
    "causal e_branchformer": ("e_branchformer", {**BRANCH, **CAUSAL}),
    "squeezeformer": ("squeezeformer", {**SQUEEZE, "use_dynamic_chunk": True}),
    "squeezeformer without shift": ("squeezeformer", {**SQUEEZE, "do_rel_shift": False, "dw_stride": True}),
    "squeezeformer at a quarter of the rate": (
        "squeezeformer",
        {**SQUEEZE, "num_blocks": 6, "reduce_idx": [1, 2], "recover_idx": [4, 5], "encoder_dim": 24},
    ),
    "causal squeezeformer": (
        "squeezeformer",
        {**SQUEEZE, **CAUSAL, "do_rel_shift": False, "time_reduction_layer_type": "stream"},
    ),
    **{f"conformer with {name}": ("conformer", {"input_layer": name, "cnn_module_kernel": 7}) for name in INPUT_LAYERS},
}
"""{name: encoder, encoder_conf}: the encoders that are tested."""


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, make_encoder_model: Callable[..., ASRModel]) -> ASRModel:
    model = make_encoder_model(*KINDS[request.param])
    shake(model)
    return model


def shake(model: ASRModel) -> None:
    """Move biases, norms and statistics from their initial values: zeros would hide what leaks from the padding."""
    for name, tensor in model.state_dict().items():
        if tensor.dim() <= 1 and tensor.is_floating_point():
            tensor.add_(torch.rand_like(tensor) if name.endswith("var") else 0.3 * torch.randn_like(tensor))


def make_features(model: ASRModel, lengths: Sequence[int]) -> list[torch.Tensor]:
    """Random features (T, F), or ids (T,) for the input layer embed, of each length."""
    if hasattr(model.encoder.embed, "embed"):
        return [torch.randint(FEATURES, (length,)) for length in lengths]
    return [3 + torch.randn(length, FEATURES) for length in lengths]


def padded_batch(feats: list[torch.Tensor], more: int = 0, value: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch (B, T, F) with `more` frames of `value` after the longest utterance, and its lengths."""
    lengths = torch.tensor([len(utterance) for utterance in feats])
    batch = pad_sequence([*feats, feats[0].new_zeros(int(lengths.max()) + more, *feats[0].shape[1:])], True, value)
    for row, length in enumerate(lengths.tolist()):
        batch[row, length:] = value
    return batch[:-1], lengths


def draw_lengths(longest: int = 400) -> list[int]:
    """Lengths of a batch of 32: none, less than a window, short ones, ten times as long ones."""
    short = torch.randint(2, longest // 10, (UTTERANCES - 6,)).tolist()
    return [longest // 10, 0, 1, 6, *short, longest - 3, longest]


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_every_encoder_and_every_input_layer_is_tested() -> None:
    assert {encoder for encoder, _ in KINDS.values()} == set(ENCODERS)
    assert {conf.get("input_layer", "conv2d") for _, conf in KINDS.values()} == set(INPUT_LAYERS)


@torch.no_grad()
def test_an_utterance_has_the_same_frames_alone_and_in_a_batch(model: ASRModel) -> None:
    feats = make_features(model, draw_lengths())
    chunks = [(-1, -1)]
    if model.encoder.use_dynamic_chunk:
        chunks += [(4, -1), (3, 1)]
    for chunk, left in chunks:
        together, lengths = model.encode(*padded_batch(feats), chunk, left)
        probs = model.ctc_log_probs(together)
        for row in range(0, UTTERANCES, 3):
            alone, alone_lengths = model.encode(*padded_batch(feats[row : row + 1]), chunk, left)
            assert alone_lengths.tolist() == lengths[row : row + 1].tolist()
            size = int(lengths[row])
            assert_same(together[row, :size], alone[0, :size])
            assert_same(probs[row, :size], model.ctc_log_probs(alone)[0, :size])


@torch.no_grad()
def test_no_padding_changes_an_utterance(model: ASRModel) -> None:
    lengths = torch.randint(20, 90, (3,)).tolist()
    feats = make_features(model, lengths)
    for utterance in feats:
        alone, alone_lengths = model.encode(*padded_batch([utterance]))
        for more in (*range(1, 9), int(torch.randint(9, 200, ()))):
            found, found_lengths = model.encode(*padded_batch([utterance], more, value=5))
            assert found_lengths.tolist() == alone_lengths.tolist()
            assert_same(found[:, : alone.size(1)], alone)
            assert not found[:, alone.size(1) :].any()
