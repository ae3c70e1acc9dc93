"""A Ray cluster of the tests' own, started in a folder that is not that of its callers."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STARTS_WITHIN, ENDS_WITHIN = 120, 60
"""Seconds."""
FRUGAL = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
"""Variables of the head: it starts no workers before there are jobs, whose environment they would
lack."""


@contextmanager
def ray_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Start a head with one CPU in `folder`; gives the variables by which callers join it.

    For each caller, Ray starts a worker for each CPU, even for one job; each takes 2 s and imports
    what the jobs need.

    Its port is free, its files and token are its own: no other test meets it, nor it another.
    """
    home = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets in it want a short path
    (home / "token").write_text(secrets.token_hex())
    joining = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(home / "token")}
    joining["RAY_TASK_MAX_RETRIES"] = (
        "0"  # otherwise Ray starts three more workers for a job that kills its worker
    )
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"]
    command += [
        "--port",
        "0",
        "--num-cpus",
        "1",
        "--temp-dir",
        str(home),
        "--include-dashboard=false",
    ]
    command += ["--include-log-monitor=false", "--no-monitor"]
    environment = os.environ | joining | {"RAY_TMPDIR": str(home)} | FRUGAL
    log = home / "log"
    with open(log, "w") as file:
        head = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while "--block" not in log.read_text():
            assert head.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield {**joining, "RAY_ADDRESS": (home / "ray_current_cluster").read_text().strip()}
    finally:
        # Takes its own processes along; `ray stop` would end those of others too
        head.send_signal(signal.SIGTERM)
        try:
            head.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            print(f"Ray did not end within {ENDS_WITHIN} s: {log.read_text()}", file=sys.stderr)
            head.kill()
            head.wait(ENDS_WITHIN)
        shutil.rmtree(home, ignore_errors=True)  # a process of Ray may still write
