"""How often the host waits for the accelerator in a step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.test_batches import SQUEEZE, ZIPFORMER
from tests.support.models.digit_whisper import digit_whisper
from tests.support.models.tiny_paraformer import tiny_paraformer
from tests.support.train.stand_in import DEVICE, moved, standing_in
from tests.support.train.starved import starve
from tests.support.train.tiny import CPU, FEATURES, small_config, tiny_batch, two_views
from wenet_uio.models import build_model
from wenet_uio.train import micro_batches
from wenet_uio.train.distributed import World
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.micro_batches import emptied_batch
from wenet_uio.train.update import StepOutcome

CONFORMER = small_config().encoder_conf.model_dump(exclude_defaults=True)
U2PP = {
    "encoder_conf": {
        **CONFORMER,
        "use_dynamic_chunk": True,
        "dropout_rate": 0.1,
        "cnn_module_norm": "batch_norm",
        "causal": True,
    },
    "decoder": "bitransformer",
    "decoder_conf": {"attention_heads": 2, "linear_units": 16, "num_blocks": 1, "r_num_blocks": 1},
    "model_conf": {
        "ctc_weight": 0.3,
        "reverse_weight": 0.3,
        "lsm_weight": 0.1,
        "length_normalized_loss": False,
    },
}
TRANSDUCER = {
    "model": "transducer",
    "predictor": "rnn",
    "predictor_conf": {
        "embed_size": 8,
        "output_size": 8,
        "hidden_size": 8,
        "num_layers": 1,
        "embed_dropout": 0,
    },
    "joint": "transducer_joint",
    "joint_conf": {"join_dim": 8},
    "model_conf": {"ctc_weight": 0.1, "attention_weight": 0.15, "transducer_weight": 0.75},
}
CTL = {
    "model": "ctl_model",
    "model_conf": {"n_negatives": 3},
    "encoder": "dual_conformer",
    "encoder_conf": {**CONFORMER, "use_dynamic_chunk": True},
}
PARAFORMER = {
    **tiny_paraformer(),
    "encoder_conf": {
        **tiny_paraformer()["encoder_conf"],
        "dropout_rate": 0,
        "positional_dropout_rate": 0,
    },
    "decoder_conf": {
        **tiny_paraformer()["decoder_conf"],
        "dropout_rate": 0,
        "positional_dropout_rate": 0,
    },
    "predictor": "cif_predictor",
    "predictor_conf": {"dropout": 0},
    "input_dim": 7 * FEATURES,
}
WHISPER = {
    **digit_whisper(num_blocks=1),
    "encoder_conf": {**digit_whisper(num_blocks=1)["encoder_conf"], "positional_dropout_rate": 0},
    "decoder_conf": {**digit_whisper(num_blocks=1)["decoder_conf"], "positional_dropout_rate": 0},
    "output_dim": None,
}
SCALED = {"optim": "scaled_adam", "optim_conf": {"lr": 0.045}}
KINDS = {
    "conformer": {},
    "conformer, two views, smoothed CTC": {"cr_loss_scale": 0.2, "ctc_label_smoothing": 0.1},
    "conformer with CTC in the middle": {"interctc_layer_idx": [1], "interctc_weight": 0.3},
    "efficientConformer with CTC before the block that lowers the rate": {
        "encoder": "efficientConformer",
        "encoder_conf": {**CONFORMER, "stride_layer_idx": 1, "group_layer_idx": [0]},
        "interctc_layer_idx": [1],
        "interctc_weight": 0.3,
    },
    "squeezeformer with CTC at the lower rate": {
        "encoder": "squeezeformer",
        "encoder_conf": {**SQUEEZE, "output_size": 16, "attention_heads": 2},
        "interctc_layer_idx": [2],
        "interctc_weight": 0.3,
    },
    "conformer with limited attention": {"encoder_conf": {**CONFORMER, "att_context_size": [3, 2]}},
    "u2++": U2PP,
    "transducer": TRANSDUCER,
    "ctl_model": CTL,
    "zipformer": {"encoder": "zipformer", "encoder_conf": ZIPFORMER},
    "whisper": WHISPER,
    "paraformer": PARAFORMER,
    "paraformer that finds times": {**PARAFORMER, "predictor": "paraformer_predictor"},
    "conformer whose decoder sees no blanks": {
        "model_conf": {"ctc_weight": 0.3, "apply_non_blank_embedding": True}
    },
    "conformer in fp16": {"dtype": "fp16"},
    "conformer with ScaledAdam": SCALED,
    "conformer with Muon": {"optim": "muon"},
}
DECIDED_BY_THE_HOST = {"conformer in fp16", "conformer with ScaledAdam", "conformer with Muon"}
"""Kinds in which the host reads the norm of the gradient before the update."""
DRAWS = {
    "u2++",
    "zipformer",
    "squeezeformer with CTC at the lower rate",
    "ctl_model",
    "paraformer",
    "paraformer that finds times",
}
"""Kinds that draw other numbers on a CPU, or in other batches."""


def steps_of(keys: dict[str, Any], world: World) -> tuple[list[StepOutcome], list[dict[str, int]]]:
    """Two steps of one and three micro-batches, and what the host waited for to launch and to read
    each.
    """
    # Two of the three micro-batches are joined
    config = small_config(**keys, join_micro_batches=400)
    torch.manual_seed(1)
    model = build_model(config)
    outcomes, waits = [], []
    with standing_in() as device:
        engine = DdpEngine(moved(model) if world.device == DEVICE else model, config, world, seed=5)
        engine.connect()
        for number, parts in enumerate((1, 3), 1):
            batches = [
                tiny_batch([90 - part, 50], number + part, tokens=3) for part in range(parts)
            ]
            batches = [
                replace(batch, texts=batch.keys, extra=({},) * len(batch)) for batch in batches
            ]
            batches = [two_views(batch) for batch in batches] if config.cr_loss_scale else batches
            device.waits.clear()
            launched = engine.launch(batches, number, {})
            waits.append(dict(+device.waits))
            device.waits.clear()
            outcomes.append(launched.outcome())
            waits.append(dict(+device.waits))
    return outcomes, waits


def test_the_stand_in_counts_what_an_accelerator_waits_for() -> None:
    with standing_in() as device:
        values = torch.arange(3.0).to(DEVICE) + torch.ones(3, device=DEVICE)
        assert (values.device, values.mean().device) == (DEVICE, DEVICE)
        assert +device.waits == {"aten::_to_copy to the device": 1}
        values.copy_(torch.arange(3.0))
        assert +device.waits == {"aten::_to_copy to the device": 1, "aten::copy_ to the device": 1}
        device.waits.clear()
        values.copy_(torch.arange(3.0), non_blocking=True)
        values += torch.ones(3).to(DEVICE, non_blocking=True)
        assert not +device.waits
        assert float(values.sum()) == 6
        assert bool(values[0] > 0)
        assert device.waits == {"aten::_local_scalar_dense": 2}
        assert values.tolist() == values.cpu().tolist() == [1, 2, 3]
        lengths = torch.tensor([3]).to(DEVICE)
        probabilities = torch.zeros(3, 1, 2).log_softmax(2).to(DEVICE)
        target = torch.ones(1, 1).long().to(DEVICE)
        device.waits.clear()
        torch.nn.functional.ctc_loss(probabilities, target, lengths, lengths - 2)
        assert +device.waits == {"aten::_ctc_loss": 2}
        with pytest.raises(
            AssertionError, match="tensors of the host beside tensors of the device"
        ):
            values.add(torch.ones(3))


@pytest.mark.third
@pytest.mark.parametrize("kind", KINDS)
def test_the_host_waits_once_in_a_step_and_for_its_result_only_however_many_micro_batches_it_has(
    kind: str,
) -> None:
    outcomes, waits = steps_of(KINDS[kind], World(DEVICE))
    launching, reading = (
        ({"aten::_to_copy": 1}, {}) if kind in DECIDED_BY_THE_HOST else ({}, {"aten::_to_copy": 1})
    )
    assert waits == [launching, reading] * 2
    expected, _ = steps_of(KINDS[kind], CPU)
    if "fp16" not in kind:  # whose scaler skips steps until it has found its scale
        assert [outcome.applied for outcome in (*outcomes, *expected)] == [True] * 4
    if kind not in DRAWS and "fp16" not in kind:
        for found, same in zip(outcomes, expected, strict=True):
            assert found.sums == pytest.approx(same.sums, rel=1e-4)


def test_micro_batches_without_audio_or_without_utterances_need_no_wait() -> None:
    config = small_config()
    torch.manual_seed(1)
    model = build_model(config)
    audio, text, empty = (
        tiny_batch([90, 50], 1, tokens=3),
        tiny_batch([0, 0], 2, tokens=3),
        tiny_batch([90], 3),
    )
    with standing_in() as device:
        engine = DdpEngine(moved(model), config, World(DEVICE), seed=5)
        engine.connect()
        outcome = engine.step([audio, text, emptied_batch(empty), audio], 1, {})
    assert +device.waits == {"aten::_to_copy": 1}
    assert outcome.applied
    assert outcome.sums["texts"] == 2


def test_steps_on_the_device_change_the_weights_as_on_the_cpu() -> None:
    weights = []
    for world in (World(DEVICE), CPU):
        config = small_config(grad_clip=0.1, optim_conf={"lr": 0.01, "eps": 1e-3})
        torch.manual_seed(1)
        model = build_model(config)
        with standing_in():
            engine = DdpEngine(
                moved(model) if world.device == DEVICE else model, config, world, seed=5
            )
            engine.connect()
            batches = [tiny_batch([90, 50], number, tokens=3) for number in range(3)]
            batches[1].feats[0, 0, 0] = float("inf")  # this step is skipped
            applied = [
                engine.step([batch], number, {}).applied for number, batch in enumerate(batches, 1)
            ]
            weights.append(
                {name: value.detach().clone() for name, value in engine.weights().items()}
            )
        assert applied == [True, False, True]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.third
@pytest.mark.parametrize("where", ["copy", "join", "pass"])
def test_micro_batches_that_do_not_fit_together_are_joined_less_and_give_the_same_weights(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [tiny_batch([90, 50], number, tokens=3) for number in range(3)]
    weights = []
    for world in (World(DEVICE), World(DEVICE), CPU):  # the second run has the sizes of the first
        config = small_config(optim_conf={"lr": 0.01, "eps": 1e-3})
        torch.manual_seed(1)
        model = build_model(config)
        with standing_in():
            engine = DdpEngine(
                moved(model) if world.device == DEVICE else model, config, world, seed=5
            )
            engine.connect()
            if world.device == DEVICE:
                engine.size_limit.keep_in(tmp_path / "too_large.jsonl", world)
            if where == "pass":
                starve(engine, "forward")
            elif not weights:
                monkeypatch.setattr(
                    micro_batches,
                    "on_device" if where == "copy" else "join_batches",
                    failing_twice(where),
                )
            assert engine.step(batches, 1, {}).applied
            assert engine.step(batches, 2, {}).applied
            monkeypatch.undo()
            weights.append(
                {name: value.detach().clone() for name, value in engine.weights().items()}
            )
    lines = [json.loads(line) for line in (tmp_path / "too_large.jsonl").read_text().splitlines()]
    assert [(line["step"], line["utterances"]) for line in lines] == [(1, 6), (1, 4)]
    assert all("lower join_micro_batches" in line["said"] for line in lines)
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        torch.testing.assert_close(value, weights[2][name], rtol=1e-5, atol=1e-6)


def failing_twice(where: str) -> Callable[..., Any]:
    """A function of micro_batches.py that runs out of memory in its first two calls."""
    function = micro_batches.on_device if where == "copy" else micro_batches.join_batches
    failures = iter(range(2))

    def call(*arguments: Any) -> Any:
        if next(failures, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return function(*arguments)

    return call
