"""Loops of other packages on several ranks: every utterance once, over a resume on other ranks."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

pytest.importorskip("accelerate")
from accelerate.state import AcceleratorState, GradientState

from wenet_uio.config import parse_config
from wenet_uio.dataset import LoaderOptions, build_loader

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
PHASES = ((3, 6), (1, 2), (2, 4))
"""Ranks of a start, and the batches that it reads of one epoch."""
CONFIG = parse_config(
    {
        "dataset_conf": {
            "batch_conf": {"batch_type": "static", "batch_size": 2},
            "fbank_conf": {"num_mel_bins": 10},
        }
    },
    "test",
)


class Job(NamedTuple):
    """A loop that each rank of a start runs."""

    loop: str
    accumulate: int
    """Batches of each rank in an update."""
    updates: int
    phase: int
    killed_after: int | None = None
    """Batches after which rank 1 gets SIGKILL; None: never."""


class KilledLoader:
    """A loader whose process is killed between two batches."""

    def __init__(self, loader, batches):
        self.loader, self.batches = loader, batches

    def __iter__(self):
        for number, batch in enumerate(self.loader):
            if number == self.batches:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def __getattr__(self, name):
        return getattr(self.loader, name)


def killed_loader(batches):
    """A function as build_loader, whose loaders kill their process after so many batches."""
    return lambda *given, **options: KilledLoader(build_loader(*given, **options), batches)


def page(name):
    """Return the names that the blocks of a page define, without the calls at their ends."""
    text = (HOW_TO / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    names = {}
    for block in blocks:
        if "class Batches" in block or "def fit" in block:
            exec(compile(block.partition("\nfirst = ")[0], name, "exec"), names, names)
    return names


def plain(updates, resumed, accumulate, make_loader):
    """A loop in DistributedDataParallel that accumulates by hand."""
    loader = make_loader(
        "train.list", "raw", CONFIG, None, training=True, options=LoaderOptions(empty_batches=True)
    )
    if resumed:
        loader.load_state_dict(json.loads(Path("plain.json").read_text()))

    keys, waiting = [], 0
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    while updates:
        for batch in loader:
            keys += batch.keys
            loss = model(batch.feats).square().sum() / max(1, batch.feats.numel())
            loss.backward()
            waiting += 1
            if waiting == accumulate:
                updates, waiting = updates - 1, 0
            if not updates:
                break

    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        Path("plain.json").write_text(json.dumps(loader.state_dict()))
    return keys


def accelerate(updates, resumed, accumulate, make_loader):
    names = page("own-loop.md") | {
        "config": CONFIG,
        "build_loader": make_loader,
        "LoaderOptions": LoaderOptions,
        "torch": torch,
    }
    make = names["Accelerator"]
    names["Accelerator"] = lambda **given: make(
        **given | {"gradient_accumulation_steps": accumulate}
    )
    function = type(names["fit"])(names["fit"].__code__, names, argdefs=(None,))
    return function(updates, "exp/accelerate" if resumed else None)


def trainer(updates, resumed, accumulate, make_loader):
    names = page("hf-trainer.md")
    names["config"] = CONFIG
    done = int(Path("updates").read_text()) if resumed else 0
    saved = f"exp/trainer/checkpoint-{done}" if resumed else None
    keys = names["fit"](done + updates, saved, accumulate)
    torch.distributed.barrier()
    Path("updates").write_text(str(done + updates))
    return keys


LOOPS = {"plain": plain, "accelerate": accelerate, "trainer": trainer}


def run_rank(rank, world_size, port, jobs):
    """Run the loops as one of several processes; write the keys that they read."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.distributed.init_process_group("gloo")
    for job in jobs:
        os.chdir(f"{job.loop}_{job.accumulate}")
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        make_loader = build_loader
        if job.killed_after is not None and rank == 1:
            make_loader = killed_loader(job.killed_after)
        keys = LOOPS[job.loop](job.updates, job.phase > 0, job.accumulate, make_loader)
        Path(f"keys_{job.phase}_{rank}.json").write_text(json.dumps(keys))
        torch.distributed.barrier()
        os.chdir("..")
    torch.distributed.destroy_process_group()


def start_ranks(world_size, jobs):
    """Fork a process for each rank: it has imported everything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    work = partial(run_rank, world_size=world_size, port=port, jobs=jobs)
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=work, args=(rank,)) for rank in range(world_size)]
    for process in processes:
        process.start()
    return processes


def run_ranks(world_size, jobs):
    processes = start_ranks(world_size, jobs)
    for process in processes:
        process.join(120)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * world_size


@pytest.mark.parametrize("accumulate", [2, pytest.param(1, marks=pytest.mark.all)])
def test_every_utterance_is_read_once_over_resumes_on_other_ranks(
    accumulate, make_lists, tmp_path, monkeypatch
):
    from transformers import Trainer  # noqa: F401  each forked rank would import it again, in 4 s

    monkeypatch.chdir(tmp_path)
    path = make_lists(2 * sum(batches for _, batches in PHASES))["raw"]
    for name in LOOPS:
        Path(f"{name}_{accumulate}").mkdir()
        shutil.copy(path, f"{name}_{accumulate}/train.list")

    for phase, (ranks, batches) in enumerate(PHASES):
        jobs = [Job(name, accumulate, batches // ranks // accumulate, phase) for name in LOOPS]
        run_ranks(ranks, jobs)

    for name in LOOPS:
        files = list(Path(f"{name}_{accumulate}").glob("keys_*.json"))
        assert len(files) == sum(ranks for ranks, _ in PHASES)
        read = Counter(key for file in files for key in json.loads(file.read_text()))
        assert set(read.values()) == {1}, name
        assert len(read) == len(Path(path).read_text().splitlines()), name


@pytest.mark.third
@pytest.mark.parametrize("loop", ["plain", "accelerate"])
def test_after_a_kill_between_saves_each_utterance_is_read_once_from_the_last_save_on(
    loop, make_lists, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = make_lists(32)["raw"]  # 16 batches, 4 updates of two batches of two ranks
    Path(f"{loop}_2").mkdir()
    shutil.copy(path, f"{loop}_2/train.list")
    run_ranks(2, [Job(loop, 2, 1, 0)])

    processes = start_ranks(2, [Job(loop, 2, 3, 1, killed_after=3)])
    processes[1].join(120)
    assert processes[1].exitcode == -signal.SIGKILL
    processes[0].kill()  # it waits for the other
    processes[0].join(120)
    assert not list(Path(f"{loop}_2").glob("keys_1_*.json"))

    run_ranks(2, [Job(loop, 2, 3, 2)])
    files = list(Path(f"{loop}_2").glob("keys_*.json"))
    assert len(files) == 4
    read = Counter(key for file in files for key in json.loads(file.read_text()))
    assert len(read) == 32
    assert set(read.values()) == {1}
