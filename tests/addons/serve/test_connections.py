"""Crowds of connections that send nothing, or too slowly, and the clients among them."""

import asyncio
import errno
import json
import resource
import socket
import ssl
import time
from contextlib import contextmanager, suppress

import aiohttp
import pytest

from tests.addons.serve.test_serve import self_signed
from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.raw_clients import frame, raw_socket, until
from wenet_uio.addons.serve.connections import MOST_UNPROVEN, Connection, Connections
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.server_loop import FullLog


def address(server):
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port)


@contextmanager
def silent_sockets(server, count):
    sockets = [socket.create_connection(address(server)) for _ in range(count)]
    try:
        yield sockets
    finally:
        for connection in sockets:
            connection.close()


async def health(server):
    async with aiohttp.ClientSession() as client, client.get(f"{server.url}/health") as answer:
        return answer.status, await answer.json()


def refused(server, reason):
    return vars(server.server)["_metrics"].refused.labels(reason)._value.get()


def open_connections(server):
    return len(server.server.connections._open)


def test_silent_sockets_give_way_to_those_that_ask(recogniser, speech):
    limits = Limits(max_connections=20)
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as server:
        expected = sentences(asyncio.run(speak(server.socket_url, speech)))
        with silent_sockets(server, 300):
            assert asyncio.run(health(server))[0] == 200
            assert sentences(asyncio.run(speak(server.socket_url, speech))) == expected
            assert open_connections(server) <= 20
            assert refused(server, "max_connections") >= 280
    assert expected != [""]


def test_a_client_with_a_place_never_gives_way(recogniser, speech):
    limits = Limits(max_connections=3)
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as server:
        expected = sentences(asyncio.run(speak(server.socket_url, speech)))

        async def meanwhile():
            stream = asyncio.create_task(speak(server.socket_url, speech, packet=1600, pause=0.01))
            await asyncio.sleep(0.05)
            with silent_sockets(server, 100):
                return await stream

        assert sentences(asyncio.run(meanwhile())) == expected


def test_where_all_are_busy_a_new_connection_is_closed_and_a_later_one_is_served(recogniser):
    with served(recogniser, ServeOptions(limits=Limits(max_connections=1))) as server:

        async def two():
            async with aiohttp.ClientSession() as client:
                first = await client.ws_connect(server.socket_url)
                await first.send_json(START)
                await first.receive()
                with pytest.raises(aiohttp.ClientConnectionError):
                    await health(server)
                await first.close()

        asyncio.run(two())
        assert until(lambda: not open_connections(server))
        assert asyncio.run(health(server))[0] == 200


def test_a_socket_that_has_not_started_gives_way(recogniser):
    with served(recogniser, ServeOptions(limits=Limits(max_connections=2))) as server:
        strangers = [raw_socket(server.socket_url) for _ in range(2)]
        assert asyncio.run(health(server))[0] == 200
        assert open_connections(server) <= 2
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize(
    "pieces", [[], [b"GET / HT"], [b"GET / HTTP/1.1\r\n", *[b"A: b\r\n"] * 99]]
)
def test_a_head_that_takes_too_long_ends_its_connection(recogniser, pieces):
    with served(recogniser, ServeOptions(limits=Limits(head_seconds=0.4))) as server:
        start = time.monotonic()
        with socket.create_connection(address(server)) as raw:
            raw.settimeout(20)
            try:
                for piece in pieces:
                    raw.sendall(piece)
                    time.sleep(0.02)
                assert raw.recv(100) == b""
            except ConnectionError:
                pass
        assert 0.3 < time.monotonic() - start < 5
        assert until(lambda: not open_connections(server))
        assert refused(server, "head_seconds") == 1


def test_a_connection_that_has_asked_once_may_wait_longer_for_its_next_request(recogniser):
    async def twice(server):
        async with aiohttp.ClientSession() as client:
            for _ in range(2):
                async with client.get(f"{server.url}/health") as answer:
                    assert answer.status == 200
                await asyncio.sleep(0.5)

    with served(recogniser, ServeOptions(limits=Limits(head_seconds=0.2))) as server:
        asyncio.run(twice(server))
        assert refused(server, "head_seconds") == 0


@pytest.fixture
def arrived(monkeypatch):
    """Lengths of what arrives at all connections."""
    lengths = []
    receive = Connection.data_received

    def counted(connection, data):
        lengths.append(len(data))
        receive(connection, data)

    monkeypatch.setattr(Connection, "data_received", counted)
    return lengths


def test_little_is_read_of_a_socket_before_it_starts(recogniser, arrived, monkeypatch):
    monkeypatch.setattr("wenet_uio.addons.serve.session.CLOSING", 0.5)
    limits = Limits(head_seconds=2)
    with served(recogniser, ServeOptions(limits=limits)) as server:
        raw = raw_socket(server.socket_url)
        raw.settimeout(0.5)
        raw.sendall(b"\x82\xff" + (15 << 20).to_bytes(8, "big") + bytes(4))
        with pytest.raises((TimeoutError, ConnectionError)):
            raw.sendall(bytes(15 << 20))
        assert sum(arrived) < MOST_UNPROVEN + (1 << 19)
        assert server.server._sessions
        assert until(lambda: not server.server._sessions)
        raw.close()


def test_little_is_read_of_a_client_that_asks_much_and_reads_nothing(recogniser, arrived):
    """aiohttp before 3.14.1 keeps each of these requests (CVE-2026-54273)."""
    with served(recogniser, ServeOptions()) as server, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(address(server))
        raw.settimeout(2)
        with pytest.raises((TimeoutError, ConnectionError)):
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 700_000)
        assert sum(arrived) < 1 << 20
        assert asyncio.run(health(server))[0] == 200


def test_much_audio_right_behind_the_start_is_read(server, speech):
    """The start is not answered yet when the limit of an unproven socket is reached."""
    content = speech.astype("<i2").tobytes() * 4
    raw = raw_socket(server.socket_url)
    start = frame(1, json.dumps(START | {"hot_words": ["ab" * 50] * 200}).encode())
    audio = b"\x82\xff" + len(content).to_bytes(8, "big") + bytes(4) + content
    raw.sendall(start + audio + frame(1, b'{"signal": "end"}'))
    raw.settimeout(30)
    received = b""
    while piece := raw.recv(1 << 16):
        received += piece
        if b"speech_end" in received:
            break
    raw.close()
    assert b"final_result" in received


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"),
    [(64, 64, 32, 64), (64, 4096, 100, 200), (150, 190, 95, 190), (300, 4096, 100, 300)],
)
def test_the_system_gives_files_for_all_connections_or_there_are_fewer(
    soft, hard, most, raised, monkeypatch, caplog
):
    limit = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limit))
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: limit.__setitem__(0, value[0]))
    connections = Connections(Limits(max_connections=100), Metrics())
    connections.fit_to_system()
    assert (connections._max_connections, limit[0]) == (most, raised)
    assert ("--max_connections: " in caplog.text) == (hard < 200)


def test_the_system_is_asked_for_more_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        Connections(Limits(max_connections=1000), Metrics()).fit_to_system()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 2000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_tls_handshake_that_takes_too_long_ends_its_connection(recogniser, tmp_path):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*self_signed(tmp_path))
    options = ServeOptions(limits=Limits(head_seconds=0.4))
    with served(recogniser, options, context=context) as server:
        host, port = server.url.removeprefix("https://").split(":")
        start = time.monotonic()
        with socket.create_connection((host, int(port))) as raw:
            raw.settimeout(20)
            with suppress(ConnectionError):
                assert raw.recv(100) == b""
        assert 0.3 < time.monotonic() - start < 5


def test_a_lack_of_open_files_is_logged_once_and_other_errors_as_ever(caplog):
    loop = asyncio.new_event_loop()
    handler = FullLog()
    lack = {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}
    other = {"message": "another error", "exception": OSError(errno.EIO, "broken")}
    for context in (*[lack] * 1000, other, lack):
        handler.take(loop, context)
    loop.close()
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "error: no connection can be accepted: Too many open files (ulimit -n)",
        "error: another error",
    ]
