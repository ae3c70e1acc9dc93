"""What a person is told while a store does not answer."""

import socket

import pytest

from tests.support.storage.scripted_server import Answer, scripted
from wenet_uio.dataset.storage.transfer import version_of
from wenet_uio.dataset.storage.versions import StorageError


@pytest.fixture
def closed_port():
    """A port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


def test_a_server_that_is_not_there_is_named_with_the_time_that_is_waited(
    closed_port, monkeypatch, caplog
):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "4")
    uri = f"http://127.0.0.1:{closed_port}/a.tar"
    with pytest.raises(StorageError, match="no data received for 4 s"):
        version_of(uri)
    told = [record.message for record in caplog.records if "trying again" in record.message]
    assert len(told) == 1
    assert told[0].startswith(f"http://127.0.0.1:{closed_port} does not give what is asked for (")
    assert told[0].endswith("trying again for up to 4 s (WENET_UIO_DEADLINE)")


def test_a_store_that_asks_to_wait_beyond_the_deadline_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "2")
    with (
        scripted(lambda request: Answer(429, {"Retry-After": "3600"})) as server,
        pytest.raises(
            StorageError,
            match=r"the store asks to wait 3600 s, longer than WENET_UIO_DEADLINE \(2 s\)",
        ),
    ):
        version_of(f"{server.url}/a.tar")
