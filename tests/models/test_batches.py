"""The numbers of an utterance do not depend on its batch: neither on other utterances nor on the
padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from tests.support.models.tiny_paraformer import tiny_paraformer
from wenet_uio.config import load_config, parse_config
from wenet_uio.config.encoder_kind import ENCODERS
from wenet_uio.families.transducer.model import Transducer
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.subsampling import INPUT_LAYERS
from wenet_uio.models.weights import load_weights
from wenet_uio.search import DecodeOptions, decode
from wenet_uio.search.modes import MODES, possible_modes

FEATURES = 40
UTTERANCES = 12
BRANCH = {"cgmlp_linear_units": 24, "cgmlp_conv_kernel": 7}
CAUSAL = {"causal": True, "use_dynamic_chunk": True}
SQUEEZE = {
    "encoder_dim": 16,
    "num_blocks": 3,
    "reduce_idx": 1,
    "recover_idx": 2,
    "cnn_module_kernel": 5,
}
EFFICIENT = {"linear_units": 32, "num_blocks": 3, "cnn_module_kernel": 15}
ZIPFORMER = {
    **{
        "downsampling_factor": [1, 2],
        "num_encoder_layers": 1,
        "encoder_dim": [16, 24],
        "encoder_unmasked_dim": 16,
    },
    **{
        "feedforward_dim": 32,
        "num_heads": 2,
        "query_head_dim": 8,
        "cnn_module_kernel": [7, 5],
        "pos_dim": 12,
    },
}
MOE = {"mlp_type": "moe", "n_expert": 3}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {"use_dynamic_chunk": True}),
    "transformer with rotary positions": (
        "transformer",
        {
            "pos_enc_layer_type": "rope_pos",
            "selfattention_layer_type": "rope_abs_selfattn",
            "n_kv_head": 1,
        },
    ),
    "transformer with experts": (
        "transformer",
        {**MOE, "normalize_before": False, "layer_norm_type": "rms_norm"},
    ),
    "conformer": ("conformer", {"cnn_module_kernel": 7, "use_dynamic_chunk": True}),
    "conformer with layer norm": (
        "conformer",
        {"cnn_module_norm": "layer_norm", "normalize_before": False},
    ),
    "conformer without bias": ("conformer", {"conv_bias": False, "cnn_module_kernel": 7}),
    "conformer with distances": (
        "conformer",
        {"selfattention_layer_type": "shaw_rel_selfattn", "pos_enc_layer_type": "no_pos"},
    ),
    "conformer with fixed chunks": ("conformer", {"cnn_module_kernel": 7, "static_chunk_size": 5}),
    "conformer with limited context": (
        "conformer",
        {"cnn_module_kernel": 7, "att_context_size": [3, 2]},
    ),
    "causal conformer": ("conformer", {**CAUSAL, "cnn_module_kernel": 8}),
    "branchformer": ("branchformer", {**BRANCH, "use_dynamic_chunk": True}),
    "branchformer with learned weights": (
        "branchformer",
        {**BRANCH, "merge_method": "learned_ave"},
    ),
    "branchformer without attention": (
        "branchformer",
        {**BRANCH, "use_attn": False, "use_linear_after_conv": True},
    ),
    "causal branchformer": ("branchformer", {**BRANCH, **CAUSAL}),
    "e_branchformer": (
        "e_branchformer",
        {**BRANCH, "merge_conv_kernel": 5, "use_dynamic_chunk": True},
    ),
    "causal e_branchformer": ("e_branchformer", {**BRANCH, **CAUSAL}),
    "squeezeformer": ("squeezeformer", {**SQUEEZE, "use_dynamic_chunk": True}),
    "squeezeformer without shift": (
        "squeezeformer",
        {**SQUEEZE, "do_rel_shift": False, "dw_stride": True},
    ),
    "squeezeformer at a quarter of the rate": (
        "squeezeformer",
        {
            **SQUEEZE,
            "num_blocks": 6,
            "reduce_idx": [1, 2],
            "recover_idx": [4, 5],
            "encoder_dim": 24,
        },
    ),
    "causal squeezeformer": (
        "squeezeformer",
        {**SQUEEZE, **CAUSAL, "do_rel_shift": False, "time_reduction_layer_type": "stream"},
    ),
    "efficient conformer": (
        "efficientConformer",
        {
            **EFFICIENT,
            "stride_layer_idx": 1,
            "group_layer_idx": [0, 1, 2],
            "use_dynamic_chunk": True,
        },
    ),
    "efficient conformer at a quarter of the rate": (
        "efficientConformer",
        {
            **EFFICIENT,
            "stride_layer_idx": [0, 1],
            "stride": [2, 2],
            "group_layer_idx": [1],
            "stride_kernel": False,
        },
    ),
    "causal efficient conformer": (
        "efficientConformer",
        {
            **EFFICIENT,
            **CAUSAL,
            "stride_layer_idx": 1,
            "group_layer_idx": [0],
            "normalize_before": False,
        },
    ),
    "conformer of firered": (
        "firered_conformer",
        {
            **{
                "pos_enc_layer_type": "rel_pos_firered",
                "selfattention_layer_type": "firered_rel_selfattn",
            },
            **{
                "input_layer": "firered_conv2d4",
                "final_norm": False,
                "conv_inner_factor": 4,
                "linear_units": 32,
            },
        },
    ),
    "transformer of ctl_model": ("dual_transformer", {}),
    "conformer of ctl_model": ("dual_conformer", {"cnn_module_kernel": 7}),
    "sanm_encoder": (
        "sanm_encoder",
        {"linear_units": 32, "kernel_size": 8, "sanm_shfit": 2, "use_dynamic_chunk": True},
    ),
    "zipformer": ("zipformer", ZIPFORMER),
    "causal zipformer": ("zipformer", {**ZIPFORMER, "causal": True, "chunk_size": 4}),
    "sanm_encoder with a second stack": (
        "sanm_encoder_with_tp",
        {"linear_units": 32, "tp_blocks": 1},
    ),
    **{
        f"conformer with {name}": ("conformer", {"input_layer": name, "cnn_module_kernel": 7})
        for name in INPUT_LAYERS
    },
}
"""{name: encoder, encoder_conf}: the encoders that are tested."""


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, make_encoder_model: Callable[..., ASRModel]) -> ASRModel:
    model = make_encoder_model(*KINDS[request.param])
    shake(model)
    return model


def shake(model: ASRModel) -> None:
    """Move biases, norms and statistics from their initial values: zeros would hide what leaks from
    the padding.
    """
    for name, tensor in model.state_dict().items():
        if tensor.dim() <= 1 and tensor.is_floating_point():
            tensor.add_(
                torch.rand_like(tensor) if name.endswith("var") else 0.3 * torch.randn_like(tensor)
            )


def make_features(
    model: ASRModel, lengths: Sequence[int], dim: int = FEATURES
) -> list[torch.Tensor]:
    """Random features (T, dim), or ids (T,) for the input layer embed, of each length."""
    if hasattr(model.encoder.embed, "embed"):
        return [torch.randint(FEATURES, (length,)) for length in lengths]
    return [3 + torch.randn(length, dim) for length in lengths]


def padded_batch(
    feats: list[torch.Tensor], more: int = 0, value: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch (B, T, F) with `more` frames of `value` after the longest utterance, and its
    lengths.
    """
    lengths = torch.tensor([len(utterance) for utterance in feats])
    batch = pad_sequence(
        [*feats, feats[0].new_zeros(int(lengths.max()) + more, *feats[0].shape[1:])], True, value
    )
    for row, length in enumerate(lengths.tolist()):
        batch[row, length:] = value
    return batch[:-1], lengths


def draw_lengths(longest: int = 200) -> list[int]:
    """Lengths of a batch: none, less than a window, short ones, ten times as long ones."""
    short = torch.randint(2, longest // 10, (UTTERANCES - 6,)).tolist()
    return [longest // 10, 0, 1, 6, *short, longest - 3, longest]


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_every_encoder_and_every_input_layer_is_tested() -> None:
    assert {encoder for encoder, _ in KINDS.values()} == set(ENCODERS)
    assert {conf.get("input_layer", "conv2d") for _, conf in KINDS.values()} == set(INPUT_LAYERS)


@pytest.mark.third
@torch.no_grad()
def test_an_utterance_has_the_same_frames_alone_and_in_a_batch(model: ASRModel) -> None:
    feats = make_features(model, draw_lengths())
    chunks = [(-1, -1)]
    if model.encoder.traits.dynamic_chunks:
        chunks += [(4, -1), (3, 1)]
    for chunk, left in chunks:
        together, lengths = model.encode(*padded_batch(feats), chunk, left)
        probs = model.ctc_log_probs(together)
        for row in (*range(6), UTTERANCES - 1):
            alone, alone_lengths = model.encode(*padded_batch(feats[row : row + 1]), chunk, left)
            assert alone_lengths.tolist() == lengths[row : row + 1].tolist()
            size = int(lengths[row])
            assert_same(together[row, :size], alone[0, :size])
            assert_same(probs[row, :size], model.ctc_log_probs(alone)[0, :size])


@pytest.mark.third
@torch.no_grad()
def test_no_padding_changes_an_utterance(model: ASRModel) -> None:
    feats = make_features(model, torch.randint(20, 90, (2,)).tolist())
    for utterance in feats:
        alone, alone_lengths = model.encode(*padded_batch([utterance]))
        for more in (*range(1, 6), 8, int(torch.randint(9, 200, ()))):
            found, found_lengths = model.encode(*padded_batch([utterance], more, value=5))
            assert found_lengths.tolist() == alone_lengths.tolist()
            assert_same(found[:, : alone.size(1)], alone)
            assert not found[:, alone.size(1) :].any()


@pytest.mark.third
def test_the_gradient_of_a_batch_is_the_mean_of_those_of_its_utterances(model: ASRModel) -> None:
    feats = make_features(model, [90, 41, 64])
    labels = [torch.tensor(tokens) for tokens in ([1, 2, 3, 2], [4], [5, 1])]

    def gradients(rows: slice, more: int) -> list[torch.Tensor]:
        model.zero_grad()
        target = pad_sequence([*labels[rows]], True, -1)
        target_lengths = torch.tensor([len(tokens) for tokens in labels[rows]])
        model(*padded_batch(feats[rows], more), target, target_lengths)["loss"].backward()
        return [
            torch.zeros_like(weight) if weight.grad is None else weight.grad
            for weight in model.parameters()
        ]

    alone = [gradients(slice(row, row + 1), 0) for row in range(3)]
    for found, *others in zip(gradients(slice(3), 11), *alone, strict=True):
        expected = torch.stack(others).mean(dim=0)
        torch.testing.assert_close(
            found, expected, atol=1e-5 * max(1.0, expected.abs().max().item()), rtol=1e-4
        )


def test_batch_norm_counts_padded_frames_in_training(
    make_encoder_model: Callable[..., ASRModel],
) -> None:
    model = make_encoder_model("conformer", {"num_blocks": 1}).train()
    counted: list[int] = []
    norm = next(part for part in model.modules() if isinstance(part, torch.nn.BatchNorm1d))
    norm.register_forward_pre_hook(lambda _, arguments: counted.append(len(arguments[0])))
    _, lengths = model.encoder(*padded_batch(make_features(model, [87, 47])))
    assert (counted, lengths.tolist()) == ([2 * 21], [21, 11])


BLOCKS = {"output_size": 16, "attention_heads": 2, "num_blocks": 2}
DECODER = {"linear_units": 32, "attention_heads": 2, "num_blocks": 1}
TRANSDUCER = {
    "model": "transducer",
    "model_conf": {"transducer_weight": 0.5, "ctc_weight": 0.3, "attention_weight": 0.2},
    "predictor_conf": {"embed_size": 16, "output_size": 16},
    "joint_conf": {"join_dim": 16},
}
SEARCHED: dict[str, dict[str, Any]] = {
    "conformer": {"encoder_conf": {**BLOCKS, "use_dynamic_chunk": True}},
    "transformer": {"encoder": "transformer", "encoder_conf": {**BLOCKS, "input_layer": "conv1d2"}},
    "e_branchformer": {
        "encoder": "e_branchformer",
        "encoder_conf": {**BLOCKS, **BRANCH, "input_layer": "conv2d2"},
    },
    "squeezeformer": {
        "encoder": "squeezeformer",
        "encoder_conf": {**SQUEEZE, "output_size": 16, "attention_heads": 2},
    },
    "frames without blank": {
        "model_conf": {"apply_non_blank_embedding": True, "reverse_weight": 0.6}
    },
    "paraformer": {
        **tiny_paraformer(),
        "input_dim": 7 * FEATURES,
        "model_conf": {"ctc_weight": 0.3},
    },
    **{
        f"transducer with predictor {name}": {**TRANSDUCER, "predictor": name}
        for name in ("rnn", "embedding", "conv")
    },
}
"""{name: keys of the yaml}: the models with which every mode searches."""


@pytest.fixture(params=SEARCHED)
def searched(request: pytest.FixtureRequest) -> ASRModel:
    values = {
        "encoder_conf": BLOCKS,
        "decoder_conf": {**DECODER, "r_num_blocks": 1},
        "model_conf": {"reverse_weight": 0.4, "ctc_weight": 0.3},
        "tokenizer_conf": {"special_tokens": {"<sos>": 8, "<eos>": 8}},
        "input_dim": FEATURES,
        "output_dim": 9,
    }
    torch.manual_seed(0)
    model = build_model(parse_config({**values, **SEARCHED[request.param]}, "test")).eval()
    shake(model)
    if isinstance(model, Transducer):  # without blanks every frame would have 64 tokens
        model.joint.ffn_out.bias.data[model.blank] = 2.0
    return model


def assert_same_hypotheses(
    model: ASRModel, modes: Sequence[str], option: DecodeOptions, dim: int = FEATURES
) -> None:
    """Check some utterances of a batch."""
    feats = make_features(model, draw_lengths(100), dim)
    together = decode(model, *padded_batch(feats, 20), modes, option)
    for row in (0, 1, 3, 4, UTTERANCES - 2):
        alone = decode(model, *padded_batch(feats[row : row + 1]), modes, option)
        for mode in modes:
            found, (expected,) = together[mode][row], alone[mode]
            scores = [hypothesis.score for hypothesis in expected]
            assert [hypothesis.score for hypothesis in found] == pytest.approx(
                scores, abs=1e-5, rel=1e-5
            )
            for one, other in zip(found, expected, strict=True):
                assert (one.tokens, one.frames, one.language) == (
                    other.tokens,
                    other.frames,
                    other.language,
                )


def test_every_mode_finds_the_same_alone_and_in_a_batch(searched: ASRModel) -> None:
    modes = possible_modes(searched)
    assert_same_hypotheses(searched, modes, DecodeOptions(beam_size=3))
    if searched.encoder.traits.dynamic_chunks:
        assert_same_hypotheses(
            searched, modes, DecodeOptions(beam_size=3, decoding_chunk_size=4, reverse_weight=0.6)
        )


@pytest.mark.parametrize("timestamps", [False, True])
def test_whisper_finds_the_same_alone_and_in_a_batch(golden2: Path, timestamps: bool) -> None:
    model = build_model(load_config(golden2 / "whisper/train.yaml", of_model=True)).eval()
    load_weights(model, golden2 / "whisper/final.pt")
    modes = ["attention"] if timestamps else list(MODES)
    assert_same_hypotheses(model, modes, DecodeOptions(beam_size=3, timestamps=timestamps), dim=80)
