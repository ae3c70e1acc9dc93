"""A server of an untrained model that can stream, and speech-like samples."""

import sys
import threading
import time
from functools import partial

import numpy as np
import pytest

import wenet_uio
from tests.addons.listen.conftest import bursts, write_model
from tests.support.made_once import made_once
from tests.support.serve.browser import Visitor
from tests.support.serve.clients import served
from tests.support.serve.trained_digits import train_model
from wenet_uio.addons.serve import engine as engine_module
from wenet_uio.addons.serve.options import ServeOptions

NO_ENDS = ServeOptions(endpoints={})


@pytest.fixture(scope="module", autouse=True)
def _without_silero():
    """These tests use bursts of noise as speech, which a voice detector refuses. Servers of a module
    start after it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "silero_vad", None)
        yield


@pytest.fixture
def slow_down(monkeypatch):
    """A function that makes each step of the streams some seconds longer."""
    advance = engine_module.advance

    def by(seconds):
        def slowly(streams):
            time.sleep(seconds)
            advance(streams)

        monkeypatch.setattr(engine_module, "advance", slowly)

    return by


@pytest.fixture(scope="session")
def recogniser(tmp_path_factory):
    return wenet_uio.load_model(
        write_model(tmp_path_factory.mktemp("model") / "bursts"), device="cpu"
    )


@pytest.fixture(scope="session")
def trained(corpora, tmp_path_factory):
    """Folder of a model that was trained on digits; see trained_digits.py."""
    recordings = corpora / "fsdd/recordings"
    return made_once(tmp_path_factory, "trained_digits", partial(train_model, recordings))


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
