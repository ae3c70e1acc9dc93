"""Properties of every engine, on one rank and on several."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import wenet_uio.train
from tests.support import preloaded
from tests.support.train import ranks
from tests.support.train.tiny import CPU, tiny_config
from wenet_uio.train.engine_deepspeed import read_settings
from wenet_uio.train.engines import DEEPSPEED_CONFIG

ROOT = Path(__file__).parents[2]
KEYS = {
    "grad_clip": 1000,
    "optim_conf": {"lr": 0.01, "eps": 1e-3},
    "model_conf": {"ctc_weight": 0.3, "lsm_weight": 0.1},
}
BY_TOKEN = {**KEYS, "model_conf": {**KEYS["model_conf"], "length_normalized_loss": True}}
TWO_VIEWS = {
    **KEYS,
    "cr_loss_scale": 0.2,
    "cr_warmup_steps": 2,
    "interctc_layer_idx": [1],
    "interctc_conditioning": True,
}
EVERY = list(range(7))
ON_ONE = [
    [[EVERY]],
    [[[0, 1, 2, 3, 4], [5, 6]]],
    [[[0, 5], [1, 2, 3], [4], [6]]],
]
ON_TWO = [
    [[[0, 3, 4, 5, 6]], [[1, 2]]],
    [[[0], [1, 2, 3]], [[4, 5, 6]]],
    [[[0], [1], [2], []], [[3], [4, 5], [6]]],
    [[[]], [EVERY]],
]
ON_FOUR = [
    [[[0]], [[1, 2, 3]], [[4, 5]], [[6]]],
    [[[0], [1]], [[2], [3]], [[4], [5]], [[6], []]],
]
needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="deepspeed is not installed"
)


def run_ranks(job: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Results of tests/support/train/ranks.py for each deal of the job."""
    (folder / "job.json").write_text(json.dumps(job))
    launch = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={len(job['deals'][0])}",
    ]
    command = [*launch, ranks.__file__, folder / "job.json", folder / "result.pt"]
    done = preloaded.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "result.pt")


def alone(
    keys: dict[str, Any], deal: list[list[list[int]]] = ON_ONE[0], **job: Any
) -> dict[str, Any]:
    """Results on one rank, in this process."""
    return ranks.run(
        ranks.make_engine({"engine": "torch_ddp", "small": True, "keys": keys, **job}, CPU), deal
    )


def same(dealt: dict[str, Any], expected: dict[str, Any], size: int, gradient: bool = True) -> None:
    assert dealt["sums"].pop("wait") == size
    for kind in ("sums", "validated"):
        compared = [
            name for name in expected[kind] if name not in ("wait", "elapsed", "padded_frames")
        ]
        assert {name: dealt[kind][name] for name in compared} == pytest.approx(
            {name: expected[kind][name] for name in compared}, rel=1e-5
        )
    assert dealt["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    if gradient:
        assert dealt["gradient"].keys() == expected["gradient"].keys()
        for name, value in expected["gradient"].items():
            torch.testing.assert_close(dealt["gradient"][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "keys", [KEYS, BY_TOKEN, TWO_VIEWS], ids=["by utterance", "by token", "two views"]
)
@pytest.mark.parametrize("deal", ON_ONE[1:], ids=["accum_grad 2", "accum_grad 4"])
def test_accumulation_gives_the_gradient_of_the_whole_batch(
    keys: dict[str, Any], deal: list[list[list[int]]]
) -> None:
    same(alone(keys, deal), alone(keys), 1)


every_engine = pytest.mark.parametrize(
    ("engine", "deals", "keys"),
    [
        pytest.param("torch_ddp", ON_TWO, KEYS, id="torch_ddp on 2"),
        pytest.param("torch_ddp", ON_TWO[2:3], TWO_VIEWS, id="torch_ddp on 2, two views"),
        pytest.param("torch_ddp", ON_FOUR, BY_TOKEN, id="torch_ddp on 4", marks=pytest.mark.all),
        pytest.param(
            "torch_fsdp", ON_TWO[2:], {**BY_TOKEN, "optim": "adamw"}, id="torch_fsdp on 2"
        ),
        *(
            pytest.param(
                engine,
                ON_TWO[2:],
                {**KEYS, "ctc_texts": "text"},
                id=f"{engine} on 2, ctc_texts",
                marks=pytest.mark.all,
            )
            for engine in ("torch_ddp", "torch_fsdp")
        ),
        pytest.param("deepspeed", ON_TWO, KEYS, id="deepspeed on 2", marks=needs_deepspeed),
    ],
)


@every_engine
def test_a_step_from_a_state_and_a_validation_do_not_depend_on_engine_ranks_and_micro_batches(
    engine: str, deals: list[list[list[list[int]]]], keys: dict[str, Any], tmp_path: Path
) -> None:
    first = alone(keys)
    torch.save(first["state"], tmp_path / "state.pt")
    job = {"small": True, "keys": keys, "state": str(tmp_path / "state.pt")}
    expected = alone(**job)
    assert not torch.equal(
        expected["state"]["model"]["ctc.ctc_lo.bias"], first["state"]["model"]["ctc.ctc_lo.bias"]
    )
    for dealt in run_ranks({**job, "engine": engine, "deals": deals}, tmp_path):
        same(dealt, expected, len(deals[0]), gradient=engine != "deepspeed")
        # Rank 0 alone saves
        assert dealt["held"] == [
            *expected["held"],
            *[0] * (len(deals[0]) - 1),
        ]
        for name, memory in expected["state"]["optimizer"].items():
            assert dealt["state"]["optimizer"][name].keys() == memory.keys()
            for key, value in memory.items():
                torch.testing.assert_close(
                    dealt["state"]["optimizer"][name][key], value, rtol=1e-4, atol=1e-6
                )
        for name, value in expected["state"]["model"].items():
            for found in (dealt["state"]["model"], dealt["average"]):
                torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp16", marks=pytest.mark.all)])
def test_fsdp_in_16_bits_trains_batch_norms_with_the_gradient_of_one_rank_up_to_rounding(
    dtype: str, tmp_path: Path
) -> None:
    norms = {
        "attention_heads": 2,
        "linear_units": 16,
        "num_blocks": 2,
        "output_size": 16,
        "cnn_module_kernel": 3,
    }
    norms = {
        **norms,
        "cnn_module_norm": "batch_norm",
        "dropout_rate": 0,
        "positional_dropout_rate": 0,
    }
    keys = {**KEYS, "dtype": dtype, "encoder_conf": norms}
    expected = alone(keys, [[[0, 3, 4], [1, 2, 5, 6]]])["gradient"]
    deals = [[[[0, 3, 4]], [[1, 2, 5, 6]]]]
    (dealt,) = run_ranks(
        {"engine": "torch_fsdp", "small": True, "keys": keys, "deals": deals}, tmp_path
    )
    flat, other = (
        torch.cat([each[name].flatten() for name in expected])
        for each in (expected, dealt["gradient"])
    )
    # On one rank, weights at addresses 4 bytes further on change the gradient as much: other
    # kernels round otherwise.
    assert float((other - flat).norm() / flat.norm()) < 0.02


def test_the_config_of_deepspeed_is_part_of_the_package() -> None:
    assert read_settings(DEEPSPEED_CONFIG, tiny_config(grad_clip=3.0))["gradient_clipping"] == 3.0
    assert DEEPSPEED_CONFIG.parent == Path(wenet_uio.train.__file__).parent
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert DEEPSPEED_CONFIG.name in project["tool"]["setuptools"]["package-data"]["wenet_uio.train"]
