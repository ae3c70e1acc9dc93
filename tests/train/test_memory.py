from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import preloaded
from tests.support.train import starved
from tests.support.train.ranks import LENGTHS, Once, make_engine
from tests.support.train.tiny import CPU, TinyModel, tiny_batch, tiny_config
from tests.support.train.training_corpus import write_corpus
from tests.train.test_engines import needs_deepspeed
from wenet_uio.base.crashes import AGAIN, StartAgainError
from wenet_uio.config.batch import BatchConf
from wenet_uio.dataset.plan.policies import limiting_key
from wenet_uio.train.engines import DdpEngine
from wenet_uio.train.memory import TooLarge, is_out_of_memory
from wenet_uio.train.validation import validate

ROOT = Path(__file__).parents[2]


class HungryModel(TinyModel):
    """Runs out of memory with more than `room` utterances."""

    room = 2

    def forward(self, feats: torch.Tensor, *others: torch.Tensor) -> dict[str, torch.Tensor]:
        if len(feats) > self.room:
            torch.empty(1 << 46)
        return super().forward(feats, *others)


def engine_of(model: nn.Module, **keys: Any) -> DdpEngine:
    torch.manual_seed(1)
    for weight in model.parameters():
        nn.init.normal_(weight)
    engine = DdpEngine(model, tiny_config(**keys), CPU, seed=5)
    engine.connect()
    return engine


def test_failed_allocations_are_recognised() -> None:
    with pytest.raises(RuntimeError) as failed:
        torch.empty(1 << 46)
    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes (3,) and (4,) do not match"))
    assert not is_out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"))
    assert not is_out_of_memory(ValueError("step 7: out of memory for one utterance"))


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some "
        "other API call",
        "CUDA driver error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "NCCL error, ncclUnhandledCudaError: Call to CUDA function failed.\nCuda failure 2 'out of "
        "memory'",
        "NCCL error, ncclSystemError. Last error:\nFailed to CUDA calloc async 608 bytes",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
    ],
)
def test_libraries_that_ran_out_of_memory_are_recognised_by_their_words(said: str) -> None:
    assert is_out_of_memory(RuntimeError(said))


def test_a_batch_that_does_not_fit_is_split_and_ends_in_the_same_weights(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = tiny_batch([9, 7, 5, 4, 2], 1)
    hungry, other = engine_of(HungryModel()), engine_of(TinyModel())
    with caplog.at_level(logging.WARNING):
        outcome, expected = (engine.step([batch], 1, {}) for engine in (hungry, other))
    assert outcome.sums == pytest.approx(expected.sums)
    assert outcome.grad_norm == pytest.approx(expected.grad_norm)
    for name, weight in other.weights().items():
        torch.testing.assert_close(hungry.weights()[name], weight, rtol=1e-5, atol=1e-6)
    said = [record.getMessage().split(" ([enforce")[0] for record in caplog.records]
    assert said == [
        f"step 1: out of memory for {utterances} utterances of up to {frames} frames and 1 tokens: "
        "lower "
        "batch_conf.batch_size (now absent)"
        for utterances, frames in ((5, 9), (3, 5))
    ]
    assert caplog.records[0].getMessage().endswith("; the batch is split in two")


def test_batches_as_large_as_a_failed_one_are_split_beforehand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_of(HungryModel())
    engine.step([tiny_batch([9, 7, 5], 1)], 1, {})
    caplog.clear()
    engine.step([tiny_batch([9, 9, 9, 9], 2)], 2, {})
    assert not caplog.records
    engine.step([tiny_batch([4, 3, 2], 3)], 3, {})
    assert len(caplog.records) == 1


def test_a_batch_with_fewer_frames_is_as_large_if_it_needs_as_much_in_every_product() -> None:
    known = TooLarge(step=1, utterances=10, frames=100, tokens=5)
    assert known.is_within(tiny_batch([90] * 13, 1, tokens=5))
    # Less in the square of the frames
    assert not known.is_within(tiny_batch([90] * 12, 1, tokens=5))
    assert not known.is_within(tiny_batch([100] * 10, 1, tokens=4))
    # Less in the square of the tokens
    known = TooLarge(step=1, utterances=10, frames=5, tokens=100)
    assert not known.is_within(tiny_batch([5] * 12, 1, tokens=90))
    assert known.is_within(tiny_batch([5] * 13, 1, tokens=90))


def test_a_repeated_step_counts_once_in_batch_norms() -> None:
    batches, weights = [tiny_batch([9, 7], 1), tiny_batch([5, 4, 2, 2], 2)], []
    for known in (set(), {TooLarge(step=1, utterances=4, frames=5, tokens=1)}):
        torch.manual_seed(1)
        model = HungryModel()
        model.hidden = nn.Sequential(model.hidden, nn.BatchNorm1d(8))
        engine = DdpEngine(model, tiny_config(), CPU, seed=5)
        engine.connect()
        engine.size_limit.too_large = known
        engine.step(batches, 1, {})
        weights.append(engine.weights())
    assert weights[0]["hidden.1.num_batches_tracked"] == 3
    for name, value in weights[1].items():
        assert torch.equal(weights[0][name], value), name


def test_a_single_utterance_that_does_not_fit_ends_the_run() -> None:
    model = HungryModel()
    model.room = 0
    with pytest.raises(
        ValueError,
        match="step 7: out of memory for one utterance of 5 frames and 1 tokens: lower filter",
    ):
        engine_of(model).step([tiny_batch([5, 3], 1)], 7, {})


def test_running_out_of_memory_in_the_update_ends_the_run_with_the_reason() -> None:
    engine = engine_of(TinyModel())
    engine.optimizer.register_step_pre_hook(lambda *_: torch.empty(1 << 46))
    with pytest.raises(
        ValueError,
        match=r"step 3: out of memory in the update of the weights \(.*DefaultCPUAllocator",
    ):
        engine.step([tiny_batch([5, 3], 1)], 3, {})


def test_an_exchange_without_memory_is_not_joined_again() -> None:
    class Lost(TinyModel):
        def forward(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
            raise dist.DistBackendError(
                "NCCL error, ncclUnhandledCudaError: Cuda failure 2 'out of memory'"
            )

    engine = engine_of(Lost())
    with pytest.raises(StartAgainError, match="run the same command again"):
        engine.step([tiny_batch([5, 3], 1)], 3, {})
    assert {known.step for known in engine.size_limit.too_large} == {3}


def test_a_validation_splits_batches_that_do_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    batches = Once([tiny_batch([9, 7, 5, 4, 2], 1)])
    hungry, other = engine_of(HungryModel()), engine_of(TinyModel())
    with caplog.at_level(logging.WARNING):
        found, expected = (
            validate(engine, batches, lambda: False, 4) for engine in (hungry, other)
        )
    times = {"elapsed": 0, "wait": 0}
    assert {**found, **times} == pytest.approx({**expected, **times})
    assert [record.getMessage().split(" of up to")[0] for record in caplog.records] == [
        f"step 4: out of memory for {utterances} utterances" for utterances in (5, 3)
    ]
    caplog.clear()
    assert {**validate(hungry, batches, lambda: False, 5), **times} == {**found, **times}
    assert not caplog.records
    assert hungry.model.training


def test_a_single_utterance_that_does_not_fit_ends_a_validation() -> None:
    model = HungryModel()
    model.room = 0
    with pytest.raises(
        ValueError, match="step 8: out of memory for one utterance of 5 frames and 1 tokens: lower"
    ):
        validate(engine_of(model), Once([tiny_batch([5, 3], 1)]), lambda: False, 8)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"batch_type": "static", "batch_size": 8}, "batch_size (now 8)"),
        ({"batch_type": "dynamic"}, "max_frames_in_batch (now 12000)"),
        ({"batch_type": "dynamic", "batch_duration": 60}, "batch_duration (now 60.0)"),
        (
            {"batch_type": "bucket"},
            "bucket_batch_sizes[1] (now 64, for utterances of up to 1000 frames)",
        ),
        (
            {
                "batch_type": "bucket",
                "bucket_duration_bins": [3, 5.0],
                "bucket_batch_size": [9, 4, 2],
            },
            "bucket_batch_size[2] (now 2, for utterances of above 5.0 seconds)",
        ),
    ],
    ids=str,
)
def test_the_key_to_lower_is_named(conf: dict[str, Any], expected: str) -> None:
    assert limiting_key(BatchConf(**conf), frames=700, seconds=7.0) == expected


def test_all_ranks_repeat_a_step_in_which_one_ran_out_of_memory(tmp_path: Path) -> None:
    cases = [
        {"where": where, "before": before}
        for where in ("forward", "backward")
        for before in (0, 1, 3)
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", starved.__file__]
    command = [*launch, tmp_path / "cases.json", tmp_path / "result.pt"]
    done = preloaded.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    alone = make_engine({"engine": "torch_ddp", "small": True, "keys": starved.KEYS}, CPU)
    expected = starved.gradient_of(
        alone, [tiny_batch(LENGTHS, seed=3, tokens=3)], {"where": None, "before": 0}
    )
    both = zip(*(torch.load(tmp_path / f"result.pt.{rank}") for rank in range(2)), strict=True)
    for case, results in zip(cases, both, strict=True):
        assert [result["splits"] for result in results] == [[[case["before"] + 1, 4, 90, 3]]] * 2, (
            case
        )
        midway = case["where"] == "backward"
        sent = [[count > 0 for count in result["sent"]] for result in results]
        assert sent == [[midway], []], case
        for result in results:
            for name, gradient in expected["gradient"].items():
                torch.testing.assert_close(result["gradient"][name], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("engine", "starts"),
    [
        ("torch_ddp", {"starved": [[0, 0]], "killed": [[1, -SIGKILL], [0, 0]]}),
        ("torch_fsdp", {"starved": [[AGAIN, AGAIN], [0, 0]]}),
        pytest.param("deepspeed", {"starved": [[AGAIN, AGAIN], [0, 0]]}, marks=needs_deepspeed),
    ],
    ids=["torch_ddp", "torch_fsdp", "deepspeed"],
)
def test_a_run_that_ran_out_of_memory_ends_with_the_weights_of_one_that_split_beforehand(
    engine: str, starts: dict[str, list[list[int]]], tmp_path: Path
) -> None:
    write_corpus(tmp_path, max_epoch=1, save_interval=None)  # three steps, a state of the first
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = ["-m", "tests.support.train.starved_run", engine, *starts]
    done = preloaded.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {**starts, "nothing": [[0, 0]]}, done.stderr
    assert done.stderr.count("step 2: out of memory for 4 utterances of up to") == len(starts)
    assert done.stderr.count("lower batch_conf.batch_size (now 4)") == len(starts)
    assert (
        done.stderr.count("1 sizes of batches did not fit")
        == sum(map(len, starts.values())) - len(starts) + 1
    )
    expected = torch.load(tmp_path / "nothing/final.pt")
    for what in starts:
        (line,) = (tmp_path / what / "too_large.jsonl").read_text().splitlines()
        assert json.loads(line)["step"] == 2
        weights = torch.load(tmp_path / what / "final.pt")
        assert all(torch.equal(weights[name], expected[name]) for name in expected), what
