"""Workers that crash, are killed, or run out of shared memory."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from tests.support import preloaded
from tests.support.audio.crashing import crash_at_marked, mark
from tests.support.data.loading import loader, same
from tests.support.process_memory import needs_glibc
from wenet_uio.base.files import read_lines
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.workers import LONGEST_FOLDER
from wenet_uio.text.char import CharSplitter

ROOT = Path(__file__).parents[2]
COUNT = 7
"""Utterances of a list: a careful worker forks for each, which takes 0.1 s."""
MARKED = ("utt0003", "utt0005")
SMALL = {"batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 150}}
CUT = {"batch_conf": {"batch_type": "static", "batch_size": 3, "max_frames_in_batch": 100}}


@pytest.fixture
def marked_list(make_lists, tmp_path):
    """A raw list with two utterances that crash the decoder."""
    raw = make_lists(COUNT)["raw"]
    open_list(raw, "raw")
    for key in MARKED:
        mark(tmp_path / f"wav/{key}.wav")
    return raw


def contents(batches):
    return [(batch.index, batch.keys, batch.closes_step, batch.feats) for batch in batches]


def equal(left, right):
    assert [each[:3] for each in left] == [each[:3] for each in right]
    assert all(torch.equal(mine[3], theirs[3]) for mine, theirs in zip(left, right, strict=True))


@pytest.mark.third
@pytest.mark.parametrize(
    ("conf", "number"),
    [(SMALL, signal.SIGSEGV), (CUT, signal.SIGABRT), (SMALL, signal.SIGBUS)],
    ids=["whole steps", "abort in steps of several micro-batches", "bus error"],
)
def test_samples_that_crash_the_decoder_are_bad_and_all_others_are_read_once(
    marked_list, tmp_path, monkeypatch, number, conf
):
    whole = list(loader(marked_list, "raw", conf=conf))
    crash_at_marked(monkeypatch, number)
    ledger = Ledger(tmp_path / "bad.jsonl")
    found = list(loader(marked_list, "raw", conf=conf, num_workers=2, prefetch=3, ledger=ledger))
    assert [batch.planned for batch in found] == [batch.planned for batch in whole]
    assert [(batch.index, batch.closes_step) for batch in found] == [
        (b.index, b.closes_step) for b in whole
    ]
    for ours, theirs in zip(found, whole, strict=True):
        assert sorted([*ours.keys, *(skipped.key for skipped in ours.skipped)]) == sorted(
            theirs.keys
        )
        assert same(ours, theirs) or ours.skipped
    lines = read_lines(tmp_path / "bad.jsonl")
    assert sorted(line["key"] for line in lines) == sorted(MARKED)
    name = signal.Signals(number).name
    assert all(f"the decoder crashed its process ({name})" in line["detail"] for line in lines)
    assert all(line["detail"].startswith(str(tmp_path / "wav")) for line in lines)


@pytest.mark.all
def test_a_loader_goes_on_after_a_crash_in_later_epochs_and_in_shares(marked_list, monkeypatch):
    crash_at_marked(monkeypatch)
    one = loader(marked_list, "raw", conf=SMALL, num_workers=1)
    for _ in range(2):
        assert sum(len(batch) for batch in one) == COUNT - len(MARKED)
    evaluated = loader(marked_list, "raw", conf=SMALL, training=False, num_workers=2)
    assert sum(
        len(batch) for number in range(2) for batch in evaluated.share(number, 2)
    ) == COUNT - len(MARKED)


def test_the_state_after_a_crash_resumes_at_the_next_batch(marked_list, monkeypatch):
    crash_at_marked(monkeypatch)
    whole = contents(loader(marked_list, "raw", conf=SMALL, num_workers=1))
    one, other = (loader(marked_list, "raw", conf=SMALL, num_workers=1) for _ in range(2))
    first = contents(islice(one, len(whole) // 2))
    other.load_state_dict(one.state_dict())
    equal(first + contents(other), whole)


def test_a_killed_worker_is_an_error_of_the_machine(make_lists, monkeypatch, tmp_path):
    raw = make_lists(COUNT)["raw"]
    open_list(raw, "raw")
    mark(tmp_path / "wav/utt0003.wav")
    crash_at_marked(monkeypatch, signal.SIGKILL)
    with pytest.raises(
        ChildProcessError,
        match=r"a data worker was killed \(SIGKILL\).*memory ran out.*--num_workers",
    ):
        list(loader(raw, "raw", num_workers=2))


def test_a_crash_outside_of_decoders_ends_the_run_after_one_retry(
    make_lists, monkeypatch, tmp_path
):
    tries = tmp_path / "tries"

    def crash(example):
        with tries.open("a") as file:
            file.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGSEGV)

    one = loader(make_lists(COUNT)["raw"], "raw", num_workers=1)
    chains = one.reader.chains
    one.reader.use_chains(chains._replace(audio=(*chains.audio, crash)))
    with pytest.raises(
        ChildProcessError,
        match=r"crashed \(SIGSEGV\), and not in a decoder.*look at operators of dataset_conf",
    ):
        list(one)
    assert len(set(Path(tries).read_text().split())) == 2


def test_an_error_of_a_worker_is_raised_as_it_is(make_lists):
    def fail(example):
        raise RuntimeError("this is why")

    one = loader(make_lists(COUNT)["raw"], "raw", num_workers=1)
    chains = one.reader.chains
    one.reader.use_chains(chains._replace(audio=(*chains.audio, fail)))
    with pytest.raises(RuntimeError, match="this is why"):
        list(one)


def test_a_crash_does_not_interrupt_the_main_thread_elsewhere(make_lists, tmp_path, monkeypatch):
    raw = make_lists(COUNT)["raw"]
    last = list(loader(raw, "raw", conf=SMALL))[-1].keys[0]
    mark(tmp_path / f"wav/{last}.wav")
    gate = tmp_path / "gate"
    crash_at_marked(monkeypatch, gate=gate)
    before = children()
    batches = iter(loader(raw, "raw", conf=SMALL, num_workers=1, prefetch=40))
    first = next(batches)
    (worker,) = children() - before
    gate.touch()
    give_up = time.monotonic() + 60
    # Until it has crashed
    while Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < give_up
        time.sleep(0.01)
    assert len(first) + sum(len(batch) for batch in batches) == COUNT - 1


def test_full_shared_memory_is_an_error_that_says_how_to_make_it_larger(make_lists, monkeypatch):
    usage = namedtuple("usage", "free")
    raw = make_lists(COUNT)["raw"]
    free = 10**9
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(free))
    with pytest.raises(OSError, match="^/dev/shm is full.*--shm-size.*fewer workers"):
        free = 1000
        list(loader(raw, "raw", num_workers=1))
    free = 10**6

    def no_room(size):
        raise RuntimeError(
            "unable to allocate shared memory(shm) for file </torch_1_2_3>: Success (0)"
        )

    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", no_room)
    with pytest.raises(RuntimeError, match="unable to allocate"):  # for another reason
        list(loader(raw, "raw", num_workers=1))
    monkeypatch.setattr(
        "wenet_uio.dataset.batch_memory.is_shared_memory_full", lambda size: size > 0
    )
    with pytest.raises(OSError, match="^/dev/shm is full"):
        list(loader(raw, "raw", num_workers=1))
    assert len(list(loader(raw, "raw"))) > 1


def children():
    return {
        int(pid)
        for task in Path("/proc/self/task").glob("*/children")
        for pid in task.read_text().split()
    }


UNFINISHED = """
import sys
from tests.support.data.loading import loader
unfinished = [iter(loader(sys.argv[1], "raw", num_workers=workers)) for workers in (0, 1)]
for batches in unfinished:
    next(batches)
"""


def test_iterators_that_are_unfinished_when_the_interpreter_ends_say_nothing(make_lists):
    command = [sys.executable, "-c", UNFINISHED, make_lists(COUNT)["raw"]]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


KILLED = """
import os, sys
from multiprocessing import connection
from tests.support.data.loading import loader

connection.answer_challenge = lambda *_: os.kill(os.getpid(), 9)
next(iter(loader(sys.argv[1], "raw", num_workers=1)))
"""
"""A rank that is killed while it takes the memory of a batch from its worker."""


@pytest.mark.all
def test_a_rank_that_is_killed_while_it_takes_a_batch_leaves_no_stack_trace(make_lists):
    command = [sys.executable, "-c", KILLED, make_lists(COUNT)["raw"]]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")


LOCKED = """
import multiprocessing, os, sys, time
from tests.support.data.loading import loader

def slowly(example):
    time.sleep(0.2)
    return example

one = loader(sys.argv[1], "raw", num_workers=2)
chains = one.reader.chains
one.reader.use_chains(chains._replace(audio=(*chains.audio, slowly)))
batches = iter(one)
next(batches)
one._workers._loader._iterator._worker_result_queue._wlock.acquire()
print(*[worker.pid for worker in multiprocessing.active_children()], flush=True)
time.sleep(2)  # the workers have batches by then
os.kill(os.getpid(), 9)
"""
"""A rank that is killed when nobody releases the lock of the queue of batches, as after the death of
a worker that held it.
"""


def test_workers_end_with_a_killed_rank_whatever_they_wait_for(make_lists):
    command = [preloaded.python(), "-c", LOCKED, make_lists(COUNT)["raw"]]
    rank = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60)
    # The output ends when no worker holds it any more
    assert rank.returncode == -signal.SIGKILL
    assert len(rank.stdout.split()) == 2


FREED = 300_000_000
KEEPER = f"""
import multiprocessing, sys
from tests.support.data.loading import loader
from tests.support.process_memory import resident
from wenet_uio.base.memory import keep_freed_memory

keep_freed_memory()
before = resident()
block = bytearray({FREED})
del block
kept = resident() - before
batches = iter(loader(sys.argv[1], "raw", num_workers=2))
next(batches)
workers = multiprocessing.active_children()
print(kept, *[resident(worker.pid) - before for worker in workers])
"""
"""A rank that frees memory, as a training step does, before it starts workers."""


@needs_glibc
def test_workers_hold_no_memory_that_their_rank_has_freed(make_lists):
    command = [preloaded.python(), "-c", KEEPER, make_lists(COUNT)["raw"]]
    kept, *held = map(int, subprocess.check_output(command, cwd=ROOT).split())
    assert kept > FREED * 0.9
    assert len(held) == 2
    assert max(held) < FREED / 2


SCRIPT = """
import multiprocessing, sys
from tests.support.data.loading import loader

if __name__ == "__main__":
    method, data_list, workers = sys.argv[1:]
    multiprocessing.set_start_method(method)
    try:
        batches = list(loader(data_list, "raw", num_workers=int(workers)))
        print(sum(len(batch.keys) for batch in batches))
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("method", "workers", "more"),
    [
        ("fork", 2, 0),
        ("fork", 2, 1),
        *(
            pytest.param(*case, marks=pytest.mark.all)
            for case in (("spawn", 2, 0), ("spawn", 2, 30), ("fork", 0, 30))
        ),
    ],
)
def test_workers_start_only_where_they_can_make_their_sockets(
    make_lists, tmp_path, method, workers, more
):
    """The folder of temporary files has the longest path that is accepted, and more."""
    longest = LONGEST_FOLDER - len("/pymp-12345678")
    (tmp_path / "script.py").write_text(SCRIPT)
    with TemporaryDirectory(dir="/tmp") as outer:
        folder = Path(outer, "x" * (longest + more - len(outer) - 1))
        folder.mkdir()
        python = sys.executable if method == "spawn" else preloaded.python()
        command = [python, "script.py", method, make_lists(COUNT)["raw"], str(workers)]
        environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        assert "Traceback" not in done.stderr
        if more and workers:
            assert done.stdout == (
                f"TMPDIR {folder}: its path has {longest + more} bytes, and sockets of data workers "
                f"can be made in one of at most {longest}: set TMPDIR to a shorter path, such as "
                "/tmp, or use --num_workers 0\n"
            )
        else:
            assert done.stdout == f"{COUNT}\n"
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("'é' is not a unit: make units.txt again"),
        FileNotFoundError("units.txt: no such file"),
        ValueError("two lines:\nValueError: the second"),
    ],
    ids=["value", "file", "two lines"],
)
def test_an_error_is_the_same_on_any_number_of_workers(make_lists, monkeypatch, error):
    def fail(splitter, text):
        raise error

    raw = make_lists(COUNT)["raw"]
    monkeypatch.setattr(CharSplitter, "__call__", fail)
    for num_workers in (0, 1, 2):
        with pytest.raises(type(error)) as found:
            list(loader(raw, "raw", conf=SMALL, num_workers=num_workers))
        assert str(found.value) == str(error)
