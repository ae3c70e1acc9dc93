from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tests.support.train.tiny import CPU, TinyModel, small_config, tiny_batch, tiny_config
from tests.train.test_waits import U2PP
from wenet_uio.models import build_model
from wenet_uio.train.engines import DdpEngine

BLOCK = {"num_blocks": 1}
COMPILE = torch.nn.Module.compile


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
            torch.nn.utils.get_total_norm(
                [w.grad for w in engine.model.parameters() if w.grad is not None]
            )
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


@pytest.mark.parametrize("optim", ["adam", "adamw", "scaled_adam", "muon"])
@pytest.mark.parametrize("skipped", [(1,), (2, 3)], ids=["the first", "later ones"])
def test_steps_without_a_finite_gradient_do_not_count_in_the_optimizer(
    optim: str, skipped: tuple[int, ...]
) -> None:
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


def test_a_step_computes_each_micro_batch_once() -> None:
    engine = make_engine()
    sizes: list[int] = []
    engine.model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    for number in (1, 2):
        engine.step([tiny_batch([5, 3], number), tiny_batch([4], number)], number, {})
    assert sizes == [2, 1, 2, 1]


def test_modules_may_have_learning_rates_of_their_own() -> None:
    engine = make_engine(
        optim_conf={"lr": [0.1, 0.01, 0.001], "modules": ["output", "hidden.bias"]}
    )
    outcome = engine.step([tiny_batch([5, 3], 1)], 4, {})
    assert outcome.lrs == pytest.approx([0.1, 0.01, 0.001])
    assert [len(group["params"]) for group in engine.optimizer.param_groups] == [2, 1, 1]


def compiled_engine(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, **keys: Any
) -> tuple[DdpEngine, CompileCounter]:
    """An engine, whose layers are compiled as on a GPU, but without the compiler of their kernels;
    counts variants.
    """
    counter = CompileCounter()
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **keys: COMPILE(self, backend=counter, **keys)
    )
    torch.compiler.reset()
    config = small_config(**keys)
    parts = {name: getattr(config, name) for name in ("encoder_conf", "decoder_conf")}
    config = config.model_copy(
        update={name: part.model_copy(update=BLOCK) for name, part in parts.items()}
    )
    torch.manual_seed(1)
    engine = DdpEngine(build_model(config), config, CPU, seed=5)
    engine.cold = compiled
    engine.connect()
    return engine, counter


def test_compiled_layers_give_the_same_losses_and_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for compiled in (False, True):
        engine, _ = compiled_engine(monkeypatch, compiled)
        sums = [
            engine.step([tiny_batch([90, 50], number)], number, {}).sums["loss"]
            for number in (1, 2)
        ]
        found.append((sums, set(engine.weights())))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    assert found[1][1] == found[0][1]


@pytest.mark.all
def test_layers_are_compiled_before_the_first_step_and_never_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, counter = compiled_engine(monkeypatch, True, **U2PP)
    texts, first = tiny_batch([0, 0], 1, tokens=3), tiny_batch([90, 70, 50], 2, tokens=3)
    engine.step([texts], 1, {})
    assert engine.cold
    engine.step([first], 2, {})
    assert not engine.cold
    variants = counter.frame_count
    assert 2 <= variants <= 10  # of three kinds of layers
    for number, (utterances, frames, tokens) in enumerate(
        [(1, 64, 1), (5, 133, 9), (12, 100, 2), (1, 120, 7), (2, 80, 3)], 3
    ):
        engine.step([tiny_batch([frames] * utterances, number, tokens=tokens)], number, {})
    assert counter.frame_count == variants


@pytest.mark.all
def test_running_out_of_memory_while_layers_are_compiled_is_a_warning_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch, weights = tiny_batch([90, 70, 50], 1, tokens=3), []
    for fails in (False, True):
        engine, _ = compiled_engine(monkeypatch, True, **U2PP)
        calls = iter(range(6))

        def hook(_: Any, __: Any, output: Any, calls: Any = calls, fails: bool = fails) -> None:
            if next(calls, None) == 5 and fails:
                torch.empty(1 << 46)

        engine.model.encoder.register_forward_hook(hook)
        assert engine.step([batch], 1, {}).applied
        assert not engine.cold
        weights.append(engine.weights())
    (warning,) = [
        record.getMessage() for record in caplog.records if "out of memory" in record.getMessage()
    ]
    assert warning.startswith(
        "torch_compile: out of memory before the first step, for one or two utterances of 90 frames"
    )
    assert "lower dataset_conf.filter_conf.max_length or set torch_compile: false" in warning
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name])


def test_a_cpu_ignores_torch_compile_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert not make_engine(torch_compile=True).cold
    assert "torch_compile: ignored on a CPU" in caplog.text
