from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.train.support.tiny import CPU, TinyModel, small_config, tiny_batch, tiny_config
from wenet_uio.models import build_model
from wenet_uio.train.engine_ddp import DdpEngine

BLOCK = {"num_blocks": 1}


def make_engine(**keys: Any) -> DdpEngine:
    torch.manual_seed(1)
    engine = DdpEngine(TinyModel(dropout=0.5), tiny_config(**keys), CPU, seed=5)
    engine.connect()
    return engine


def test_a_step_after_load_state_dict_is_the_step_that_would_have_followed() -> None:
    batches = [tiny_batch([5, 3], seed) for seed in range(3)]
    engine, other = make_engine(), DdpEngine(TinyModel(dropout=0.5), tiny_config(), CPU, seed=6)
    engine.step(batches[:1], 1, {})
    engine.step(batches[1:2], 2, {})
    other.load_state_dict(copy.deepcopy(engine.state_dict()))
    other.connect()
    assert engine.step(batches[2:], 3, {}) == other.step(batches[2:], 3, {})
    for name, weight in engine.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name])


def test_gradient_is_clipped_by_its_global_norm() -> None:
    engine, batch = make_engine(grad_clip=0.01), tiny_batch([5, 3], 1)
    clipped = []
    engine.optimizer.register_step_pre_hook(
        lambda *_: clipped.append(
            torch.nn.utils.get_total_norm([w.grad for w in engine.model.parameters() if w.grad is not None])
        )
    )
    outcome = engine.step([batch], 1, {})
    assert outcome.grad_norm > 0.1
    assert float(clipped[0]) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_step_without_a_finite_gradient_leaves_the_weights_as_they_are(dtype: str) -> None:
    engine, batch = make_engine(dtype=dtype), tiny_batch([5, 3], 1)
    engine.step([batch], 1, {})
    before = {name: weight.clone() for name, weight in engine.model.state_dict().items()}
    batch.feats[0, 0, 0] = float("nan")
    assert not engine.step([batch], 2, {}).applied
    for name, weight in engine.model.state_dict().items():
        assert torch.equal(weight, before[name])


@pytest.mark.parametrize("optim", ["adam", "adamw", "scaled_adam"])
@pytest.mark.parametrize("skipped", [(1,), (2, 3)], ids=["the first", "later ones"])
def test_steps_without_a_finite_gradient_do_not_count_in_the_optimizer(optim: str, skipped: tuple[int, ...]) -> None:
    weights = []
    for disturbed in (True, False):
        engine = make_engine(optim=optim)
        for number in range(1, 5):
            batch = tiny_batch([5, 3], number)
            if number in skipped:
                batch.feats[0, 0, 0] = float("inf")
            if disturbed or number not in skipped:
                engine.step([batch], number, {})
        weights.append(engine.weights())
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_mixed_precision_trains_to_nearly_the_same_loss(dtype: str) -> None:
    losses = []
    for kind in ("fp32", dtype):
        engine, batch = make_engine(dtype=kind), tiny_batch([5, 3, 3, 2], 1)
        losses.append([engine.step([batch], number, {}).sums["loss"] for number in range(1, 9)])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[1][-1] < losses[1][0]


def test_a_step_of_empty_batches_changes_nothing_but_counts() -> None:
    engine = make_engine()
    before = engine.weights()
    outcome = engine.step([tiny_batch([], 1)], 1, {})
    assert (outcome.sums["utterances"], outcome.sums["loss"], outcome.grad_norm) == (0, 0, 0)
    assert all(torch.equal(value, before[name]) for name, value in engine.weights().items())


def test_modules_may_have_learning_rates_of_their_own() -> None:
    engine = make_engine(optim_conf={"lr": [0.1, 0.01, 0.001], "modules": ["output", "hidden.bias"]})
    outcome = engine.step([tiny_batch([5, 3], 1)], 4, {})
    assert outcome.lrs == pytest.approx([0.1, 0.01, 0.001])
    assert [len(group["params"]) for group in engine.optimizer.param_groups] == [2, 1, 1]


def test_compiled_layers_give_the_same_loss_and_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_module = torch.nn.Module.compile
    # Without the C++ compiler, which takes a minute.
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **keys: compile_module(self, backend="eager", **keys))

    def first_step(compiled: bool) -> tuple[float, set[str]]:
        config = small_config(torch_compile=compiled)
        parts = {name: getattr(config, name) for name in ("encoder_conf", "decoder_conf")}
        config = config.model_copy(update={name: part.model_copy(update=BLOCK) for name, part in parts.items()})
        torch.manual_seed(1)
        engine = DdpEngine(build_model(config), config, CPU, seed=5)
        engine.connect()
        return engine.step([tiny_batch([90, 50], 1)], 1, {}).sums["loss"], set(engine.weights())

    (loss, names), (compiled_loss, compiled_names) = first_step(False), first_step(True)
    assert compiled_loss == pytest.approx(loss, rel=1e-4)
    assert compiled_names == names
