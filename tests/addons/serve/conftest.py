"""A server of an untrained model that can stream, and speech-like samples."""

import fcntl
import os
import shutil
import sys
import threading

import numpy as np
import pytest

import wenet_uio
from tests.addons.listen.conftest import bursts, write_model
from tests.support.serve.browser import Visitor
from tests.support.serve.clients import served
from tests.support.serve.trained_digits import train_model
from wenet_uio.addons.serve.options import ServeOptions

NO_ENDS = ServeOptions(endpoints={})


@pytest.fixture(autouse=True)
def _without_silero(monkeypatch):
    """These tests use bursts of noise as speech, which a voice detector refuses."""
    monkeypatch.setitem(sys.modules, "silero_vad", None)


@pytest.fixture(scope="session")
def recogniser(tmp_path_factory):
    return wenet_uio.load_model(
        write_model(tmp_path_factory.mktemp("model") / "bursts"), device="cpu"
    )


@pytest.fixture(scope="session")
def trained(corpora, tmp_path_factory):
    """Folder of a model that was trained on digits; see trained_digits.py. All processes of the
    tests share it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / "trained_digits"
    with open(root / "trained_digits.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "final.pt").exists():
            shutil.rmtree(folder, ignore_errors=True)
            train_model(corpora / "fsdd" / "recordings", folder)
    return folder


@pytest.fixture(scope="module")
def server(recogniser):
    with served(recogniser, NO_ENDS) as running:
        yield running


@pytest.fixture(scope="session")
def speech():
    """Six seconds with three bursts, int16."""
    return (bursts() * 32767).astype(np.int16)


@pytest.fixture
def visitor(browser):
    """Opens pages; `browser` is of the test's module. At the end it checks what the pages asked of
    the network.
    """
    visitor = Visitor(browser)
    yield visitor
    visitor.leave()


@pytest.fixture
def held(recogniser, monkeypatch):
    """Recordings are not done before the event is set."""
    event = threading.Event()
    iterate = recogniser.iterate

    def later(*arguments):
        event.wait(60)
        yield from iterate(*arguments)

    monkeypatch.setattr(recogniser, "iterate", later)
    yield event
    event.set()
