"""Losses of a micro-batch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.models.test_batches import KINDS
from tests.support import preloaded
from tests.support.train.tiny import CPU, TinyModel, small_config, tiny_batch, two_views
from tests.train.test_start import all_configs
from wenet_uio.config import Config, parse_config
from wenet_uio.dataset.types import Batch
from wenet_uio.models import layered_encoder
from wenet_uio.models.build import build_trainable
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.engines import build_engine
from wenet_uio.train.layers import freeze_weights
from wenet_uio.train.micro_batches import emptied_batch
from wenet_uio.train.objective import (
    CACHE_VARIABLES,
    CACHED_KERNELS,
    LABELS,
    Objective,
    allows_few_shapes,
    keep_kernels,
    pad_to_rounded_frames,
    pad_to_rounded_labels,
    rounded_frames,
)

LENGTHS = (101, 67, 34, 5)
UNITS = 8


@given(st.integers(0, 1 << 20))
def test_few_lengths_remain_and_less_than_a_sixteenth_is_added(frames: int) -> None:
    rounded = rounded_frames(frames)

    assert 0 <= rounded - frames <= frames // 16
    assert rounded_frames(rounded) == rounded
    assert rounded <= rounded_frames(frames + 1)


def test_there_are_16_lengths_between_two_powers_of_two() -> None:
    for power in range(5, 14):
        lengths = range((1 << power) + 1, (2 << power) + 1)
        assert len(set(map(rounded_frames, lengths))) == 16


@given(st.integers(0, 3), st.integers(0, 90), st.integers(0, 3))
def test_features_and_labels_stay_and_padding_follows_them(
    rows: int, frames: int, bins: int
) -> None:
    for feats in (torch.ones(rows, frames, bins), torch.ones(rows, frames)):
        padded = pad_to_rounded_frames(feats)
        assert padded.shape[:2] == (rows, rounded_frames(frames))
        assert padded.shape[2:] == feats.shape[2:]
        assert padded[:, :frames].eq(1).all()
        assert padded[:, frames:].eq(0).all()

    target = pad_to_rounded_labels(torch.ones(rows, frames, dtype=torch.int64), -3)
    assert target.size(1) % LABELS == 0
    assert 0 <= target.size(1) - frames < LABELS
    assert target[:, :frames].eq(1).all()
    assert target[:, frames:].eq(-3).all()


def random_batch(config: Config, model: TrainableModel) -> Batch:
    """Return utterances of LENGTHS frames with 1 to 5 labels, and padding between them."""
    batch = tiny_batch(LENGTHS, seed=3, tokens=5)
    if hasattr(model.encoder.embed, "embed"):
        feats = torch.randint(config.feature_dim, (len(LENGTHS), max(LENGTHS)))
    else:
        feats = torch.randn(len(LENGTHS), max(LENGTHS), config.feature_dim)

    inside = torch.arange(max(LENGTHS)) < batch.feats_lengths[:, None]
    feats = feats * (inside if feats.dim() == 2 else inside[..., None])
    texts = tuple("a" for _ in LENGTHS)
    return replace(batch, feats=feats, texts=texts, extra=tuple({} for _ in LENGTHS))


def without_draws(model: TrainableModel) -> TrainableModel:
    """Switch dropout off: what it draws depends on the shape."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        for name in ("dropout_rate", "attn_branch_drop_rate"):
            if hasattr(part, name):
                setattr(part, name, 0.0)

    return model


def results(
    model: TrainableModel, batch: Batch, *, few_shapes: bool
) -> tuple[dict[str, torch.Tensor], ...]:
    """Return losses, gradients and statistics of a pass in training."""
    model = deepcopy(model)
    torch.manual_seed(1)
    losses = Objective(model, CPU.device, "fp32", few_shapes=few_shapes)(batch)
    losses["loss"].backward()
    gradients = {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    known = {name: loss.detach() for name, loss in losses.items() if loss is not None}
    return known, gradients, dict(model.named_buffers())


def differences(config: Config, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what padding to few shapes changes."""
    monkeypatch.setattr(layered_encoder, "draw_chunk", lambda *_: (7, -1))
    torch.manual_seed(0)
    model = without_draws(build_trainable(config)).train()
    batch = random_batch(config, model)
    with_padding = results(model, batch, few_shapes=True)
    without = results(model, batch, few_shapes=False)

    return [
        name
        for expected, found in zip(without, with_padding, strict=True)
        for name, tensor in expected.items()
        if not is_close(found[name], tensor)
    ]


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Tell whether tensors are equal up to the rounding of sums in fp32."""
    scale = float(expected.abs().amax()) if expected.numel() else 0.0
    return found.shape == expected.shape and torch.allclose(
        found, expected, atol=1e-5 + 1e-3 * scale, rtol=1e-4, equal_nan=True
    )


def encoder_config(encoder: str, conf: dict[str, Any]) -> Config:
    small = {"attention_heads": 2, "linear_units": 32, "num_blocks": 2}
    width = {} if encoder in ("squeezeformer", "zipformer") else {**small, "output_size": 16}
    if encoder == "branchformer":
        del width["linear_units"]

    values = {
        "encoder": encoder,
        "encoder_conf": {**width, **conf},
        "decoder_conf": {"attention_heads": 2, "linear_units": 32, "num_blocks": 1},
        "tokenizer_conf": {"special_tokens": {"<sos>": UNITS, "<eos>": UNITS}},
        "input_dim": 40,
        "output_dim": UNITS + 1,
    }
    return parse_config(values, encoder)


def test_losses_gradients_and_statistics_of_every_family_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {
        name: differences(config, monkeypatch) for name, config in all_configs(tmp_path).items()
    }
    assert {name for name, tensors in changed.items() if tensors} == {"zipformer"}


@pytest.mark.third
@pytest.mark.parametrize("kind", KINDS)
def test_losses_gradients_and_statistics_of_every_encoder_stay(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that trains on padding is left out; such a one does change."""
    config = encoder_config(*KINDS[kind])
    changed = differences(config, monkeypatch)
    allowed = allows_few_shapes(
        build_trainable(config), CPU.device, config.model_copy(update={"dtype": "bf16"})
    )

    assert allowed == (not changed)


@pytest.mark.parametrize(
    ("keys", "device", "few_shapes"),
    [
        ({"dtype": "bf16"}, "cpu", True),
        ({"dtype": "fp32"}, "cpu", False),
        ({"dtype": "bf16", "mask_padding": False}, "cpu", False),
        ({"dtype": "bf16"}, "meta", False),
    ],
)
def test_engines_pad_on_a_cpu_in_16_bits(
    keys: dict[str, Any], device: str, few_shapes: bool
) -> None:
    config = small_config(**keys)
    assert allows_few_shapes(build_trainable(config), torch.device(device), config) == few_shapes
    if device == "cpu":
        engine = build_engine(build_trainable(config), config, CPU, 0)
        assert engine.objective.few_shapes == few_shapes


def test_both_views_and_batches_without_audio_are_padded() -> None:
    config = small_config(model_conf={"ctc_weight": 0.3}, cr_loss_scale=0.2)
    torch.manual_seed(0)
    model = build_trainable(config).train()
    whole = tiny_batch(LENGTHS, seed=3, tokens=5)
    text = replace(whole, feats=whole.feats[:, :0], feats_lengths=torch.zeros(len(LENGTHS)).long())

    for batch in (two_views(whole), text):
        without, with_padding = (
            results(model, batch, few_shapes=few_shapes) for few_shapes in (False, True)
        )
        for expected, found in zip(without, with_padding, strict=True):
            assert all(is_close(found[name], tensor) for name, tensor in expected.items())


def test_a_number_of_kernels_that_the_user_sets_stays() -> None:
    ours: dict[str, str] = {}
    keep_kernels(ours)
    assert ours == {CACHE_VARIABLES[0]: str(CACHED_KERNELS)}

    for name in CACHE_VARIABLES:
        theirs = {name: "7"}
        keep_kernels(theirs)
        assert theirs == {name: "7"}


@pytest.mark.parametrize(("capacity", "generated"), [("1", 4), ("100", 2)])
def test_onednn_keeps_as_many_kernels_as_the_variable_says_after_torch_is_imported(
    capacity: str, generated: int
) -> None:
    """Two shapes in turns: a cache of one kernel generates each of them again."""
    program = f"""
import os, torch
os.environ["{CACHE_VARIABLES[0]}"] = "{capacity}"
for frames in (30, 40, 30, 40):
    torch.nn.functional.conv2d(torch.ones(2, 32, frames, 32), torch.ones(32, 32, 3, 3))
"""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in CACHE_VARIABLES},
        "ONEDNN_VERBOSE": "profile_create",
    }
    done = subprocess.run(
        [preloaded.python(), "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    created = [line for line in done.stdout.splitlines() if ",convolution," in line]
    if not created:
        pytest.skip("this torch computes convolutions without oneDNN")

    assert len(created) == 4
    assert sum("cache_miss" in line for line in created) == generated


def test_the_loss_of_a_rank_without_utterances_is_0_and_depends_on_every_trained_weight(
    tmp_path: Path,
) -> None:
    """Ranks exchange the gradients of all weights, also those that only training uses."""
    for name, config in all_configs(tmp_path).items():
        model = build_trainable(config).train()
        freeze_weights(model, config)
        batch = tiny_batch([60], seed=1)
        batch = replace(batch, feats=torch.randn(1, 60, config.feature_dim))

        loss = Objective(model, torch.device("cpu"), "fp32")(emptied_batch(batch))["loss"]
        loss.backward()

        trained = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        assert loss == 0, name
        assert all(weight.grad is not None for weight in trained.values()), name
        assert model.training


class PromptedModel(TinyModel):
    """Notes the prompts that a batch is trained with: the number of each text."""

    def prompts(self, texts: Sequence[str], fields: Any, keys: Any = ()) -> torch.Tensor:
        return torch.tensor([[int(text)] for text in texts])

    def forward(
        self, feats: torch.Tensor, *others: torch.Tensor, cr_weight: float | None = None
    ) -> dict[str, torch.Tensor]:
        *others, prompts = others
        self.seen = prompts.flatten().tolist()
        return super().forward(feats, *others)


def test_the_decoder_starts_with_the_prompts_of_its_utterances_in_both_views() -> None:
    model = PromptedModel()
    objective = Objective(model, torch.device("cpu"), "fp32")
    batch = replace(tiny_batch([5, 3], seed=1), texts=("7", "9"))
    objective(batch)
    assert model.seen == [7, 9]
    objective(two_views(batch), cr_weight=0.5)
    assert model.seen == [7, 9, 7, 9]
