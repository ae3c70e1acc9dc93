"""Where heavy preparation runs: jobs mapped over threads, over processes of this machine, or over a Ray cluster."""

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
from concurrent.futures import Executor as Pool
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal, TypeVar

from tqdm import tqdm

Job = TypeVar("Job")
Result = TypeVar("Result")
Lane = tuple[Callable[[Any], Any], Callable[[Any], Any], int]
"""Hand in a job; wait for its result; how many jobs run at once."""


@dataclass(frozen=True)
class Executor:
    """Runs the same functions wherever it is told to."""

    workers: int | None = None
    """Jobs at once; None is 1, and on Ray every CPU of the cluster."""
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
        """Results in the order of `jobs`; no more than twice `workers` jobs are under way or wait to be taken.

        Args:
            function: of a module that workers can import.
            total: sum of `size` over the jobs, for the progress bar.

        Raises:
            ChildProcessError: a worker died. What `function` raises is raised here, and no further job begins.
        """
        lane = _ray if self.kind == "ray" else _threads if self.kind == "threads" else _processes
        waiting: deque[tuple[int, Any]] = deque()
        with lane(function, self.workers) as (submit, result, workers), _bar(title, total, unit) as bar:

            def next_result() -> Result:
                done, handle = waiting.popleft()
                value = result(handle)
                bar.update(done)
                return value

            for job in jobs:
                if len(waiting) >= 2 * workers:
                    yield next_result()
                waiting.append((size(job), submit(job)))
            while waiting:
                yield next_result()


def add_executor_options(parser: argparse.ArgumentParser, *names: str, otherwise: str = "1 process") -> None:
    """The options of a heavy tool, its number of workers under `names`; `executor_of` reads them.

    Args:
        otherwise: what `--help` says that runs without a number.
    """
    parser.add_argument(
        *names,
        dest="workers",
        type=int,
        help=f"processes, or jobs at once on Ray (default: {otherwise}; on Ray, every CPU of the cluster)",
    )
    parser.add_argument(
        "--executor",
        choices=("processes", "ray"),
        default="processes",
        help="where the work runs; ray joins the cluster that RAY_ADDRESS names, or starts one on this machine, and "
        "needs the files, and the folder it is called in, at the same paths on every machine (default: %(default)s)",
    )


def executor_of(args: argparse.Namespace, otherwise: Executor | None = None) -> Executor:
    """The executor that the options ask for; where they ask for none, `otherwise`."""
    if otherwise and args.workers is None and args.executor == "processes":
        return otherwise
    return Executor(args.workers, args.executor)


def chunks(items: list[Job], length: int) -> list[list[Job]]:
    """Runs of `length` items, the last one shorter."""
    return [items[first : first + length] for first in range(0, len(items), length)]


def _bar(title: str, total: int, unit: str) -> tqdm:
    return tqdm(None, title, total, unit=unit, disable=None)


def _threads(function: Callable, workers: int | None) -> AbstractContextManager[Lane]:
    return _pool(ThreadPoolExecutor(workers or 1), function, workers or 1)


def _processes(function: Callable, workers: int | None) -> AbstractContextManager[Lane]:
    return _pool(ProcessPoolExecutor(workers or 1, initializer=_follow_parent), function, workers or 1)


@contextmanager
def _pool(pool: Pool, function: Callable, workers: int) -> Iterator[Lane]:
    def result(future: Any) -> Any:
        try:
            return future.result()
        except BrokenProcessPool:
            raise ChildProcessError(
                "a worker process died, most likely for want of memory; run again with fewer workers"
            ) from None

    try:
        yield lambda job: pool.submit(function, job), result, workers
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """A worker leaves Ctrl-C to its parent, and ends when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(function: Callable, workers: int | None) -> Iterator[Lane]:
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ModuleNotFoundError:
        raise ValueError("--executor ray needs Ray: pip install ray") from None
    import wenet_uio

    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, runtime_env={"py_modules": [wenet_uio]})
        except ConnectionError as error:
            raise ConnectionError(
                f"{error}: is it running there (RAY_ADDRESS), and does it ask for a token (RAY_AUTH_MODE=token)?"
            ) from None
    folder = Path.cwd()

    def in_folder(job: Any) -> Any:
        # Workers are in the folder where `ray start` ran; relative paths are meant from the caller's.
        try:
            os.chdir(folder)
        except OSError as error:
            raise ValueError(
                f"{folder}, the folder this was called in, is not there on {socket.gethostname()} of the Ray cluster "
                f"({error.strerror}): call it in a folder that all machines have at the same path"
            ) from None
        return function(job)

    task = ray.remote(in_folder)

    def result(reference: Any) -> Any:
        try:
            return ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise ChildProcessError(f"a Ray worker died: {' '.join(str(error).split())}") from None

    yield task.remote, result, workers or int(ray.cluster_resources().get("CPU", 0)) or 1
