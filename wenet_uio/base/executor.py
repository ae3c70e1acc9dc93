"""Run jobs in threads, in processes of this machine, or on a Ray cluster.

Results come in the order of the jobs, and the number of jobs in progress is limited. Worker
processes end when their parent is killed. If a worker crashes, as a decoder may do on damaged
audio, the jobs without a result run once more, in careful processes (`wenet_uio.base.crashes`). On Ray,
the package is sent to the machines; audio files and the current folder must have the same paths on
all machines.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, TypeVar

from tqdm import tqdm

from wenet_uio.base.crashes import be_careful, describe_exit, has_crashed
from wenet_uio.base.messages import hides_bar

log = logging.getLogger(__name__)

Job = TypeVar("Job")
Result = TypeVar("Result")
Lane = tuple[Callable[[Any], Any], Callable[[Any], Any], int]
"""Where jobs run: (submit a job -> a handle, wait for the result of a handle, number of jobs that
run at once). Handles are waited for in the order in which their jobs were submitted."""


@dataclass(frozen=True)
class Executor:
    """Maps a function over jobs, in the same way for threads, processes and Ray."""

    workers: int | None = None
    """Jobs that run at once; None: 1, or on Ray one for each CPU of the cluster."""
    kind: Literal["threads", "processes", "ray"] = "processes"

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"the number of workers must be 1 or more, found {self.workers}")

    def map(
        self,
        function: Callable[[Job], Result],
        jobs: Iterable[Job],
        title: str,
        total: int,
        size: Callable[[Job], int] = lambda job: 1,
        unit: str = "utt",
    ) -> Iterator[Result]:
        """Yield the results in the order of `jobs`. At most 2 * `workers` jobs run or have results
        that wait here.

        Args:
            function: a function that workers can import (a top-level function of a module).
            title: text of the progress bar.
            total: sum of `size` over the jobs, for the progress bar.
            size: what a job adds to the progress bar.
            unit: unit of `size`.

        Raises:
            ChildProcessError: a worker was killed, or crashed although it was careful.
            Exception: any exception of `function` is raised here; no further job is submitted.
        """
        lanes = {"threads": _thread_lane, "processes": _process_lane, "ray": _ray_lane}
        lane = lanes[self.kind]
        waiting: deque[tuple[int, Any]] = deque()

        with (
            lane(function, self.workers) as (submit, result, workers),
            tqdm(None, title, total, unit=unit, unit_scale=unit == "B", disable=hides_bar()) as bar,
        ):

            def next_result() -> Result:
                job_size, handle = waiting.popleft()
                value = result(handle)
                bar.update(job_size)
                return value

            for job in jobs:
                if len(waiting) >= 2 * workers:
                    yield next_result()
                waiting.append((size(job), submit(job)))

            while waiting:
                yield next_result()


def add_executor_options(
    parser: argparse.ArgumentParser, *names: str, default_workers: str = "1 process"
) -> None:
    """Add the options that `make_executor` reads: the number of workers, called `names`, and
    --executor.

    Args:
        default_workers: the default number of workers, for `--help`.
    """
    parser.add_argument(
        *names,
        dest="workers",
        type=int,
        help=f"processes, or jobs at once on Ray (default: {default_workers}; on Ray, one for "
        "each CPU of the cluster)",
    )
    parser.add_argument(
        "--executor",
        choices=("processes", "ray"),
        default="processes",
        help="where jobs run; ray uses the cluster in RAY_ADDRESS, or starts one on this machine. "
        "With ray, the files and the current folder must have the same paths on all machines",
    )


def make_executor(args: argparse.Namespace, otherwise: Executor | None = None) -> Executor:
    """Make the executor that the parsed options name.

    Args:
        otherwise: the executor for processes without a number of workers, also if `--executor
            processes` is stated.
    """
    if otherwise and args.workers is None and args.executor == "processes":
        return otherwise
    return Executor(args.workers, args.executor)


def chunks(items: list[Job], length: int) -> list[list[Job]]:
    """Split into lists of `length` items; the last list may be shorter."""
    return [items[first : first + length] for first in range(0, len(items), length)]


@contextmanager
def _thread_lane(function: Callable, workers: int | None) -> Iterator[Lane]:
    """Run jobs in threads of this process; at the end, those that have not begun are cancelled."""
    pool = ThreadPoolExecutor(workers or 1)
    try:
        yield lambda job: pool.submit(function, job), Future.result, workers or 1
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _process_lane(function: Callable, workers: int | None) -> Iterator[Lane]:
    """Run jobs in processes of this machine, and once more if a worker crashes."""
    pool = _CrashProofPool(function, workers or 1)
    try:
        yield pool.submit, pool.result, workers or 1
    finally:
        pool.end()


class _CrashProofPool:
    """Worker processes. After a crash, the jobs that have no result are submitted again, to careful
    workers. So a job has another future then, and `submit` returns no handle.
    """

    def __init__(self, function: Callable, workers: int) -> None:
        self._function = function
        self._workers = workers
        self._submitted: deque[tuple[Any, Future]] = deque()
        """Jobs whose results were not taken, in order."""
        self._is_careful = False
        """Whether the workers are careful: after a crash."""
        self._start_workers()

    def submit(self, job: Any) -> None:
        """Submit a job. The nth call of `result` gives the result of the nth job."""
        try:
            future = self._pool.submit(self._function, job)
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)

        self._submitted.append((job, future))

    def result(self, _handle: None = None) -> Any:
        """Wait for the result of the first job whose result was not taken.

        Raises:
            ChildProcessError: a worker was killed, or a careful worker crashed.
        """
        _job, future = self._submitted[0]
        try:
            value = future.result()
        except BrokenProcessPool:
            self._submit_again()
            return self.result()

        self._submitted.popleft()
        return value

    def end(self) -> None:
        """Wait for the running jobs; the others are cancelled. Whoever interrupts the wait, with a
        second Ctrl-C, kills the workers.
        """
        try:
            self._pool.shutdown(cancel_futures=True)
        except KeyboardInterrupt:
            # Python waits for them at its end; they ignore Ctrl-C.
            for process in self._started.values():
                process.kill()
            raise

    def _start_workers(self) -> None:
        """Replace the pool; its workers start with their first jobs."""
        self._pool = ProcessPoolExecutor(
            self._workers, initializer=start_worker, initargs=(self._is_careful,)
        )
        # `shutdown` drops the pool's own reference; exit statuses tell a crash from a kill.
        self._started = self._pool._processes

    def _submit_again(self) -> None:
        """Start new workers for the jobs without a result, careful ones after a crash."""
        self.end()
        exitcodes = [process.exitcode for process in self._started.values()]
        crash = next((exitcode for exitcode in exitcodes if has_crashed(exitcode)), None)

        if crash is None:
            raise ChildProcessError(
                "a worker process died (SIGKILL), most likely because memory ran out; run again "
                "with fewer workers"
            )

        if self._is_careful:
            raise ChildProcessError(
                f"a worker process crashed ({describe_exit(crash)}), and not in a decoder of audio"
            )

        log.warning(
            "a worker process crashed (%s): each audio is tried in a process of its own now",
            describe_exit(crash),
        )
        self._is_careful = True
        self._start_workers()

        # Results that exist are kept, and the order of the jobs with them.
        submitted = self._submitted
        self._submitted = deque()
        for job, future in submitted:
            if isinstance(future.exception(), BrokenProcessPool):
                self.submit(job)
            else:
                self._submitted.append((job, future))


def start_worker(is_careful: bool = False) -> None:
    """Initialise a worker process: ignore Ctrl-C, which the parent handles, and exit when the
    parent is killed.
    """
    if is_careful:
        be_careful()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


@contextmanager
def _ray_lane(function: Callable, workers: int | None) -> Iterator[Lane]:
    """Run jobs on a Ray cluster, and once more if a worker crashes."""
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError, WorkerCrashedError
    except ModuleNotFoundError:
        raise ValueError("--executor ray needs Ray: pip install ray") from None

    _connect_to_ray()
    task: Any = ray.remote(_call_in_folder(Path.cwd(), function))

    def submit(job: Any) -> tuple[Any, Any]:
        return job, task.remote(job, is_careful=False)

    def result(submitted: tuple[Any, Any]) -> Any:
        """Wait for a job. One that crashed its worker runs again in a careful one."""
        job, reference = submitted
        try:
            try:
                return ray.get(reference)
            except WorkerCrashedError:
                # A careful worker survives the crash of a decoder, and names its audio.
                return ray.get(task.options(max_retries=0).remote(job, is_careful=True))
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise ChildProcessError(f"a Ray worker died: {' '.join(str(error).split())}") from None

    cpus = int(ray.cluster_resources().get("CPU", 0))
    yield submit, result, workers or cpus or 1


def _connect_to_ray() -> None:
    """Connect to the cluster in RAY_ADDRESS, or start one on this machine; workers get this
    package.
    """
    import ray

    import wenet_uio

    if ray.is_initialized():
        return

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"py_modules": [wenet_uio]},
        )
    except ConnectionError as error:
        raise ConnectionError(
            f"{error}: check that a cluster runs there (RAY_ADDRESS), and whether it needs "
            "RAY_AUTH_MODE=token"
        ) from None


def _call_in_folder(folder: Path, function: Callable) -> Callable:
    """Return what a Ray worker runs: the function, in the folder of the caller.

    Workers start in the folder of `ray start`; paths of jobs are relative to that of the caller.
    """

    def run_job(job: Any, *, is_careful: bool) -> Any:
        """Run a job in the folder of the command, on any machine of the cluster."""
        if is_careful:
            be_careful()

        try:
            os.chdir(folder)
        except OSError as error:
            raise ValueError(
                f"{folder}, the current folder, does not exist on {socket.gethostname()} of the "
                f"Ray cluster ({error.strerror}): run the command in a folder that has the same "
                "path on all machines"
            ) from None

        return function(job)

    return run_job
