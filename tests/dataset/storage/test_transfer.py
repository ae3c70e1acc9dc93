"""What a person is told while a store does not answer."""

import logging
import socket

import pytest

from tests.support.storage.scripted_server import Answer, scripted
from wenet_uio.dataset.storage import transfer as transfer_module
from wenet_uio.dataset.storage.transfer import PROGRESS, Backoff, transfer, version_of
from wenet_uio.dataset.storage.versions import StorageError, Version


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


def test_a_wait_beyond_what_is_left_of_the_deadline_is_named_with_what_is_left(monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "30")
    answers = [Answer(429, {"Retry-After": "1"}), Answer(429, {"Retry-After": "30"})]
    with (
        scripted(lambda request: answers[min(request.number, 1)]) as server,
        pytest.raises(
            StorageError,
            match=r"asks to wait 30 s, longer than the (28|29) s left of WENET_UIO_DEADLINE \(30 s\)",
        ),
    ):
        version_of(f"{server.url}/a.tar")


def outages(messages):
    return [message for message in messages if "trying again" in message]


def test_a_second_outage_of_a_server_is_told_too(monkeypatch, caplog):
    """The server fails, answers, and fails again, for one object after another."""
    monkeypatch.setenv("WENET_UIO_DEADLINE", "30")
    monkeypatch.setattr(transfer_module, "LONGEST_PAUSE", 0.1)
    whole = Answer(200, {"ETag": '"a"'}, b"content")
    script = [*[Answer(503)] * 12, whole, *[Answer(503)] * 12, whole, whole]
    requests = iter(script)
    with scripted(lambda request: next(requests)) as server:
        uris = [f"{server.url}/{name}.tar" for name in "abc"]
        for uri, told in zip(uris, (1, 2, 2), strict=True):
            version_of(uri)
            assert len(outages(caplog.messages)) == told


def test_a_second_outage_while_one_object_is_read_is_told_too(monkeypatch, caplog):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "30")
    monkeypatch.setattr(transfer_module, "LONGEST_PAUSE", 0.1)
    body = bytes(3 * PROGRESS)
    requests = 0

    def script(request):
        nonlocal requests
        requests += 1
        if requests % 6:
            return Answer(503)
        rest = body[request.start or 0 :]
        status = 206 if request.start else 200
        headers = {"ETag": '"a"'}
        if status == 206:
            headers["Content-Range"] = f"bytes {request.start}-{len(body) - 1}/{len(body)}"
        return Answer(status, headers, rest[: PROGRESS + 10], length=len(rest))

    received = bytearray()
    with scripted(script) as server:
        version = Version(len(body), '"a"')
        transfer(f"{server.url}/a.tar", received.extend, 0, len(body), version)

    assert len(received) == len(body)
    assert len(outages(caplog.messages)) == requests // 6 > 1


def test_a_server_that_stays_away_is_told_once_for_many_objects(closed_port, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv("WENET_UIO_DEADLINE", "2")
    monkeypatch.setattr(transfer_module, "LONGEST_PAUSE", 0.1)
    for name in "abc":
        with pytest.raises(StorageError, match="no data received"):
            version_of(f"http://127.0.0.1:{closed_port}/{name}.tar")
    assert len(outages(caplog.messages)) == 1


def test_a_deadline_too_long_for_sockets_does_not_stop_a_transfer(monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1e19")
    with scripted(lambda request: Answer(200, {"ETag": '"a"'}, b"content")) as server:
        assert version_of(f"{server.url}/a.tar").size == len(b"content")


def test_pauses_double_with_jitter_up_to_the_longest_and_begin_again_after_progress():
    backoff = Backoff(first=1.0, longest=5.0)
    for most in (1, 2, 4, 5, 5):
        assert most / 2 <= backoff.next_pause() <= most
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next_pause() <= 1


def test_an_outage_of_days_does_not_overflow():
    backoff = Backoff(first=0.1, longest=5.0)
    assert all(backoff.next_pause() <= 5 for _ in range(20_000))
