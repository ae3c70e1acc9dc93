"""A folder that takes long to make is made once for all processes of the tests."""

import multiprocessing
import os
from functools import partial
from pathlib import Path

import pytest

from tests.support.made_once import made_once


class Factory:
    """Stands in for `tmp_path_factory` of a worker process."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def getbasetemp(self) -> Path:
        return self.root / f"popen-gw{os.getpid()}"


def make(calls: Path, folder: Path) -> None:
    with open(calls, "a") as file:
        file.write("called\n")
    folder.mkdir()
    (folder / "model").write_text("trained")


def ask(root: Path) -> None:
    folder = made_once(Factory(root), "model", partial(make, root / "calls"))
    assert (folder / "model").read_text() == "trained"


def test_processes_that_ask_at_the_same_time_share_the_folder_that_one_of_them_makes(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=ask, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "calls").read_text() == "called\n"


def test_a_folder_whose_making_failed_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")

    def fail(folder: Path) -> None:
        folder.mkdir()
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        made_once(Factory(tmp_path), "model", fail)
    ask(tmp_path)
