from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.tiny import CPU, ListLoader, TinyModel, tiny_batch, tiny_config
from wenet_uio.models import build_model
from wenet_uio.train.engine import DdpEngine, freeze_idle, seed_everything, steps

ROOT = Path(__file__).parents[2]
EVERY = list(range(7))


def run_ranks(deal: list[list[list[int]]], result: Path) -> dict[str, Any]:
    """What tests/train/ranks.py finds on len(deal) ranks."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={len(deal)}"] if len(deal) > 1 else []
    command = [sys.executable, *launch, str(Path(__file__).with_name("ranks.py")), json.dumps(deal), str(result)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return torch.load(result)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One rank with the whole batch."""
    return run_ranks([[EVERY]], tmp_path_factory.mktemp("alone") / "result.pt")


@pytest.mark.parametrize(
    "deal",
    [
        pytest.param([[[0, 1, 2, 3, 4], [5, 6]]], id="two micro-batches of one rank"),
        pytest.param([[[0, 3, 4, 5, 6]], [[1, 2]]], id="uneven ranks"),
        pytest.param([[[0], [1, 2, 3]], [[4, 5, 6]]], id="more micro-batches on one rank"),
        pytest.param([[[]], [EVERY]], id="an empty batch"),
    ],
)
def test_gradient_of_a_step_and_validation_do_not_depend_on_how_the_data_is_dealt(
    deal: list[list[list[int]]], alone: dict[str, Any], tmp_path: Path
) -> None:
    dealt = run_ranks(deal, tmp_path / "result.pt")
    assert dealt["gradient"].keys() == alone["gradient"].keys()
    for name, gradient in alone["gradient"].items():
        torch.testing.assert_close(dealt["gradient"][name], gradient, rtol=1e-5, atol=1e-7)
    assert dealt["sums"].pop("wait") == len(deal)
    for kind in ("sums", "validated"):
        compared = [name for name in alone[kind] if name not in ("wait", "elapsed", "padded_frames")]
        assert {name: dealt[kind][name] for name in compared} == pytest.approx(
            {name: alone[kind][name] for name in compared}, rel=1e-5
        )


def make_engine(**keys: Any) -> DdpEngine:
    torch.manual_seed(1)
    return DdpEngine(TinyModel(dropout=0.5), tiny_config(**keys), CPU, seed=5)


def test_what_a_step_draws_depends_on_seed_step_and_rank_alone() -> None:
    def draw(*arguments: int) -> torch.Tensor:
        seed_everything(*arguments)
        return torch.rand(3)

    assert torch.equal(draw(1, 2, 3), draw(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not torch.equal(draw(1, 2, 3), draw(*other))


def test_a_step_after_load_state_dict_is_the_step_that_would_have_followed() -> None:
    batches = [tiny_batch([5, 3], seed) for seed in range(3)]
    engine, other = make_engine(), make_engine()
    engine.step(batches[:1], 1, {})
    engine.step(batches[1:2], 2, {})
    other.load_state_dict(copy.deepcopy(engine.state_dict()))
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


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_mixed_precision_trains_to_nearly_the_same_loss(dtype: str) -> None:
    losses = []
    for kind in ("fp32", dtype):
        engine, batch = make_engine(dtype=kind), tiny_batch([5, 3, 3, 2], 1)
        losses.append([engine.step([batch], number, {}).sums["loss"] for number in range(1, 9)])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[1][-1] < losses[1][0]


def test_steps_hold_accum_grad_closed_batches_and_what_is_left_is_a_step_of_its_own() -> None:
    batches = [tiny_batch([2], seed) for seed in range(6)]
    batches[1].closes_step = False
    assert [[batch.keys[0] for batch in step] for step in steps(ListLoader(batches), 2)] == [
        ["0-0", "1-0", "2-0"],
        ["3-0", "4-0"],
        ["5-0"],
    ]


def test_steps_take_no_batch_from_the_loader_ahead_of_its_time() -> None:
    loader = ListLoader([tiny_batch([2], seed) for seed in range(5)])
    for number, _ in enumerate(steps(loader, 2), 1):
        assert loader.state_dict() == {"epoch": 0, "position": min(2 * number, 5)}
    assert loader.state_dict() == {"epoch": 1, "position": 0}


def frozen(ctc_weight: float, reverse_weight: float) -> set[str]:
    """Parts of a small U2++ model that are frozen."""
    small = {"attention_heads": 2, "linear_units": 8, "num_blocks": 1}
    config = tiny_config(
        encoder_conf={**small, "output_size": 8},
        decoder_conf={**small, "r_num_blocks": 1},
        model_conf={"ctc_weight": ctc_weight, "reverse_weight": reverse_weight},
        tokenizer_conf={"special_tokens": {"<sos>": 4, "<eos>": 4}},
        output_dim=5,
    )
    model = build_model(config)
    freeze_idle(model)
    parts = {"ctc": model.ctc, "left": model.decoder.left_decoder, "right": model.decoder.right_decoder}
    return {name for name, part in parts.items() if not any(weight.requires_grad for weight in part.parameters())}


def test_what_has_no_part_in_the_loss_is_frozen() -> None:
    assert frozen(ctc_weight=0.3, reverse_weight=0.3) == set()
    assert frozen(ctc_weight=0.3, reverse_weight=0.0) == {"right"}
    assert frozen(ctc_weight=0.0, reverse_weight=0.3) == {"ctc"}
    assert frozen(ctc_weight=1.0, reverse_weight=0.3) == {"left", "right"}
