"""Train for some minutes with a fault every few seconds, and compare with a quiet run.

    bash tests/soak.sh MINUTES [--seed N] [--every SECONDS] [--folder FOLDER]

A small model trains on shards from a server on loopback, on 3, then 2, then 5 ranks. Faults are
drawn at random: the kill of a rank, a data worker or the launcher; a full disk; a store that
stalls, breaks off, answers nonsense or vanishes; files whose times are an hour off; a damaged copy
in the cache; other units. After each end the same command is started again. A second run takes the
same numbers of ranks at the same steps, without faults. Then:

- the weights of both runs are equal in every bit;
- the record of every epoch counts every utterance once as read, and none as bad;
- an operator of the quiet run has seen every utterance once in each epoch.

Exit status: 0 if all of this holds. The seed is printed; the same seed draws the same faults.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import yaml

from tests.support.data.packing import pack
from tests.support.storage.servers import FaultyServer, serving
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.base.crashes import is_careful
from wenet_uio.dataset.formats.data_list import parse_raw_line
from wenet_uio.dataset.types import Example
from wenet_uio.prepare.sharding import ShardNaming, ShardOptions

ROOT = Path(__file__).parents[1]
PHASES = ((3, 0.4), (2, 0.4), (5, 0.2))
"""Ranks of a phase, and its share of the time. The quiet run follows one phase behind, so the last
one is short.
"""
RANKS = tuple(ranks for ranks, _ in PHASES)
NEVER = 10**6
"""Epochs or steps that no run reaches."""
STORE_SECONDS = 4.0
"""How long the store is faulty."""
ORPHANS_SECONDS = 5.0
"""How long ranks may live after their launcher; then the manager of a cluster ends them."""
KEYS = "keys.txt"
"""Where the operator of the quiet run notes the keys that it sees."""


class Note:
    """An operator of the quiet run: notes the key of each example."""

    def __call__(self, example: Example) -> Example:
        """The example itself; the measurement of quiet before the first step does not count."""
        if is_careful():
            return example
        with open(os.environ["SOAK_KEYS"], "a", encoding="utf-8") as file:
            file.write(f"{example.key}\n")
        return example


@dataclass
class Run:
    """A training run in a folder of its own."""

    folder: Path
    workers: int
    """Data workers of each rank."""

    @property
    def exp(self) -> Path:
        return self.folder / "exp"

    @property
    def step(self) -> int:
        """The step of the newest state; 0 before the first."""
        states = [int(path.stem.partition("_")[2]) for path in self.exp.glob("state_*.pt")]
        return max(states, default=0)

    def start(self, ranks: int, **keys: int) -> subprocess.Popen:
        """Start torchrun; `keys` override the config."""
        overrides = {"max_epoch": NEVER, **keys}
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc_per_node={ranks}", str(ROOT / "wenet_uio/bin/train.py")),
            *("--config", "train.yaml", "--train_data", "shards.list", "--cv_data", "cv.list"),
            *("--data_type", "shard", "--model_dir", "exp", "--device", "cpu"),
            *("--num_workers", str(self.workers), "--override_config"),
            *(f"{name}={value}" for name, value in overrides.items()),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "WENET_UIO_CACHE": str(self.folder / "cache"),
            "WENET_UIO_DEADLINE": "30",
            "SOAK_KEYS": str(self.folder / KEYS),
        }
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def keep_state(self, phase: int) -> None:
        """Keep the newest state: it is that of the end of a phase."""
        shutil.copyfile(self.exp / f"state_{self.step}.pt", self.folder / f"phase_{phase}.pt")

    def trained_to(self, ranks: int, **keys: int) -> None:
        """Train without a fault to the end that the keys name."""
        code = self.start(ranks, **keys).wait()
        if code:
            raise SystemExit(f"a run without faults ended with {code}; see {self.folder}/log")

    def follow(self, phase: int, ranks: int, step: int) -> None:
        """Train a phase without a fault to the step at which the other run ended it."""
        self.trained_to(ranks, max_steps=step)
        self.keep_state(phase)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    """Return the ranks and data workers of a launcher."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def is_rank(process: psutil.Process) -> bool:
    """Tell whether a process is a rank, and not a data worker of one."""
    try:
        parent = process.parent()
        return parent is not None and "torch.distributed.run" in parent.cmdline()
    except psutil.Error:
        return False


class Faults:
    """What goes wrong in a run. Each method is one kind of fault."""

    def __init__(
        self, run: Run, server: FaultyServer, shards: Path, seed: int, kinds: Sequence[str]
    ) -> None:
        """Faults of some kinds, drawn with `seed`; `shards` is the folder that the server serves."""
        self._run, self._server, self._shards = run, server, shards
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._order = self._drawn(list(kinds))

    def _drawn(self, kinds: list[str]) -> Iterator[str]:
        """Yield kinds at random; each comes once before any comes again."""
        while True:
            yield from self._random.sample(kinds, len(kinds))

    def strike(self, process: subprocess.Popen) -> str:
        """Let the next fault happen to a running training; return its name."""
        name = next(self._order)
        getattr(self, name)(process)
        self.done[name] += 1
        return name

    def kill_of_a_rank(self, process: subprocess.Popen) -> None:
        self._kill([member for member in family(process) if is_rank(member)])

    def kill_of_a_worker(self, process: subprocess.Popen) -> None:
        self._kill([member for member in family(process) if not is_rank(member)])

    def kill_of_the_launcher(self, process: subprocess.Popen) -> None:
        members = family(process)
        process.kill()
        _, alive = psutil.wait_procs(members, ORPHANS_SECONDS)
        for member in alive:
            member.kill()
        psutil.wait_procs(alive, 30)

    def full_disk(self, process: subprocess.Popen) -> None:
        """No file may grow beyond a size that every state exceeds."""
        for member in family(process):
            try:
                hard = member.rlimit(resource.RLIMIT_FSIZE)[1]
                member.rlimit(resource.RLIMIT_FSIZE, (4096, hard))
            except psutil.Error:
                continue  # it has ended
        self._forget_copies()

    def store_that_stalls(self, process: subprocess.Popen) -> None:
        self._store("stall")

    def store_that_breaks_off(self, process: subprocess.Popen) -> None:
        self._store("reset")

    def store_that_lies(self, process: subprocess.Popen) -> None:
        self._store("cut")

    def store_that_is_busy(self, process: subprocess.Popen) -> None:
        self._store(503)

    def store_that_vanishes(self, process: subprocess.Popen) -> None:
        self._forget_copies()
        self._server.cut_all()
        self._store("reset")

    def wrong_clock(self, process: subprocess.Popen) -> None:
        """The times of all files are an hour off, backward or forward."""
        now = time.time() + self._random.choice((-3600, 3600))
        for path in [*self._run.folder.rglob("*"), *self._shards.iterdir()]:
            try:
                os.utime(path, (now, now), follow_symlinks=False)
            except OSError:
                continue  # it was replaced meanwhile

    def damaged_copy(self, process: subprocess.Popen) -> None:
        """A byte of each copy in the cache is another one when the run starts again: processes
        compare a copy when they open it.
        """
        ended(self._run, process)
        for path in (self._run.folder / "cache").rglob("*.tar"):
            data = bytearray(path.read_bytes())
            if data:
                data[self._random.randrange(len(data))] ^= 0x20
                path.write_bytes(data)

    def other_units(self, process: subprocess.Popen) -> None:
        """A run that is started again with other units is refused; with its own units it goes
        on.
        """
        stopped(self._run, process)
        units = self._run.folder / "units.txt"
        whole = units.read_text()
        units.write_text(whole.replace("a 2\nb 3", "b 2\na 3"))
        if self._run.step:
            code = self._run.start(2).wait()
            said = (self._run.folder / "log").read_text(errors="replace")
            if not code or "units.txt" not in said[-3000:]:
                raise SystemExit("a run with other units was not refused")
        units.write_text(whole)

    def _kill(self, processes: list[psutil.Process]) -> None:
        if processes:
            victim = self._random.choice(sorted(processes, key=lambda process: process.pid))
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                return

    def _store(self, fault: str | int) -> None:
        """Let the store be faulty for some seconds; copies are fetched again."""
        end = time.monotonic() + STORE_SECONDS
        self._server.fault = lambda path, number: fault if time.monotonic() < end else None
        self._forget_copies()

    def _forget_copies(self) -> None:
        for path in (self._run.folder / "cache").rglob("*.tar"):
            path.unlink(missing_ok=True)


KINDS = [name for name in vars(Faults) if not name.startswith("_") and name != "strike"]


def stopped(run: Run, process: subprocess.Popen) -> None:
    """Ask a training to save its state and stop, as managers of clusters do; then end what is left
    of it.
    """
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        print("a training did not stop within 60 s", flush=True)
    ended(run, process)


def ended(run: Run, process: subprocess.Popen) -> None:
    """Kill a launcher, and every process that works in the folder of the run: ranks have sessions
    of their own.
    """
    process.kill()
    process.wait()
    left = [other for other in psutil.process_iter() if works_in(other, run.folder)]
    for other in left:
        with suppress(psutil.NoSuchProcess):
            other.kill()
    psutil.wait_procs(left, 30)


def works_in(process: psutil.Process, folder: Path) -> bool:
    """Tell whether a folder is the working directory of a process."""
    try:
        return process.cwd() == str(folder)
    except psutil.Error:
        return False


def disturbed(
    run: Run, faults: Faults, seconds: float, every: float
) -> Iterator[tuple[int, int, int]]:
    """Train with faults; yield (phase, ranks, last step) at the end of each phase."""
    last_step = 0
    for phase, (ranks, share) in enumerate(PHASES):
        end = time.monotonic() + seconds * share
        process, strike = run.start(ranks), time.monotonic() + every
        while time.monotonic() < end:
            if process.poll() is not None:
                ended(run, process)
                process = run.start(ranks)
                strike = max(strike, time.monotonic() + every / 2)
            if time.monotonic() >= strike:
                name = faults.strike(process)
                print(f"{ranks} ranks, step {run.step}: {name.replace('_', ' ')}", flush=True)
                strike = time.monotonic() + every
            time.sleep(0.1)

        stopped(run, process)
        if run.step == last_step:
            # A phase of faults alone: it takes one step in peace.
            run.trained_to(ranks, max_steps=run.step + 1)

        run.keep_state(phase)
        last_step = run.step
        yield phase, ranks, last_step


def epoch_of(run: Run) -> int:
    """Return the epoch of the newest state."""
    state = torch.load(run.exp / f"state_{run.step}.pt", weights_only=True)
    return state["progress"]["epoch"]


def are_equal(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    """Tell whether weights are equal in every bit."""
    return weights.keys() == others.keys() and all(
        torch.equal(weights[name], others[name]) for name in weights
    )


def differences(run: Run, quiet: Run, utterances: int, epochs: int) -> list[str]:
    """Return what is not as it must be."""
    problems = []
    for number, ranks in enumerate(RANKS):
        states = [
            torch.load(one.folder / f"phase_{number}.pt", weights_only=True) for one in (run, quiet)
        ]
        if not are_equal(*(state["model"] for state in states)):
            problems.append(f"the weights differ after phase {number}, of {ranks} ranks")

    if not are_equal(
        *(torch.load(one.exp / "final.pt", weights_only=True) for one in (run, quiet))
    ):
        problems.append("the weights differ at the end")

    whole = {"all": utterances, "read": utterances, "filtered": {}, "bad": {}}
    for one in (run, quiet):
        for record in sorted(one.exp.glob("epoch_*.yaml")):
            samples = yaml.safe_load(record.read_text())["samples"]
            if samples != whole:
                problems.append(f"{record}: {samples}")

    seen = Counter((quiet.folder / KEYS).read_text().split())
    if set(seen.values()) != {epochs} or len(seen) != utterances:
        problems.append(f"utterances were seen {Counter(seen.values())} times in {epochs} epochs")
    return problems


def written(folder: Path, store: Path, url: str) -> None:
    """Write the folder of a run: lists, config and units."""
    folder.mkdir()
    write_corpus(
        folder,
        save_interval=5,
        max_epoch=NEVER,
        dataset_conf={
            **CONFIG["dataset_conf"],
            "batch_conf": {"batch_type": "static", "batch_size": 2},
            "max_bad_ratio": 0.0,
        },
    )
    for name in ("shards", "cv"):
        tars = sorted(path.name for path in store.glob(f"{name}_*.tar"))
        (folder / f"{name}.list").write_text("".join(f"{url}/{tar}\n" for tar in tars))


def packed(store: Path, folder: Path, utterances: int) -> None:
    """Pack the corpus of `folder` into shards of the store."""
    for name, source, most in (("shards", "train.list", utterances), ("cv", "cv.list", 5)):
        lines = [parse_raw_line(line) for line in (folder / source).read_text().splitlines()]
        pack(
            lines[:most],
            store,
            str(folder / "packed.list"),
            ShardOptions(ShardNaming.of_prefix(name), per_shard=4),
        )


def soak(folder: Path, minutes: float, seed: int, every: float, kinds: Sequence[str]) -> int:
    """Run both trainings; print what happened. Returns the exit status."""
    utterances, source = 22, folder / "source"
    store, quiet_store = folder / "store", folder / "quiet_store"
    store.mkdir()
    source.mkdir()
    write_corpus(source)
    packed(store, source, utterances)
    shutil.copytree(store, quiet_store)

    with (
        serving(store) as server,
        serving(quiet_store) as quiet_server,
        ThreadPoolExecutor(1) as beside,
    ):
        # Workers read ahead, and the operator would note keys of batches that are not trained.
        run, quiet = Run(folder / "disturbed", 1), Run(folder / "quiet", 0)
        written(run.folder, store, server.url)
        written(quiet.folder, quiet_store, quiet_server.url)
        config = yaml.safe_load((quiet.folder / "train.yaml").read_text())
        config["dataset_conf"]["operators"] = [{"use": "tests.soak:Note", "after": "decode"}]
        (quiet.folder / "train.yaml").write_text(yaml.safe_dump(config))

        faults = Faults(run, server, store, seed, kinds)
        phases, followed = [], []
        for phase in disturbed(run, faults, 60 * minutes, every):
            phases.append(phase)
            followed.append(beside.submit(quiet.follow, *phase))
        server.fault = None
        last = epoch_of(run) + 2
        run.trained_to(RANKS[-1], max_epoch=last)
        for future in followed:
            future.result()
        quiet.trained_to(RANKS[-1], max_epoch=last)

    problems = differences(run, quiet, utterances, last)
    steps = ", ".join(f"{ranks} ranks to step {step}" for _, ranks, step in phases)
    print(f"{sum(faults.done.values())} faults ({dict(faults.done)}); {steps}")
    for problem in problems:
        print(f"error: {problem}")
    print(f"seed {seed}: {'not ' if problems else ''}as a quiet run")
    return int(bool(problems))


@contextmanager
def folder_of(path: str | None) -> Iterator[Path]:
    """Give the folder that was asked for, or one that is removed at the end."""
    if path is not None:
        Path(path).mkdir(parents=True)
        yield Path(path).absolute()
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> int:
    """Read the command line and soak."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minutes", type=float, help="of training with faults")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the faults")
    parser.add_argument(
        "--every", type=float, default=60.0, help="seconds between faults (default: %(default)s)"
    )
    parser.add_argument(
        "--faults", nargs="+", choices=KINDS, default=KINDS, help="kinds of faults (default: all)"
    )
    parser.add_argument("--folder", help="new folder that keeps both runs (default: none is kept)")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with folder_of(arguments.folder) as folder:
        return soak(folder, arguments.minutes, arguments.seed, arguments.every, arguments.faults)


if __name__ == "__main__":
    sys.exit(main())
