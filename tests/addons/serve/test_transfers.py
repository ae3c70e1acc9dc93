"""Uploads that arrive slowly, and the others."""

import asyncio
import gc
import socket

import aiohttp
import pytest

from tests.addons.serve.test_transcriptions import encoded
from tests.addons.serve.test_uploads import BOUNDARY, PATH, form
from tests.support.serve.clients import served
from tests.support.serve.raw_clients import until
from wenet_uio.addons.serve import uploads
from wenet_uio.addons.serve.options import Limits, ServeOptions


async def drops(pause, piece=20):
    """The beginning of a form, piece by piece, without an end."""
    yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'
    while True:
        yield bytes(piece)
        await asyncio.sleep(pause)


async def status_of(client, url, body):
    try:
        async with client.post(url, data=body, headers=BOUNDARY) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientConnectionError:
        return 0, "closed"


def arriving(server):
    return len(server.server._transcriptions._transfers._open)


@pytest.fixture
def talk(speech):
    return encoded(speech[:16000])


async def crowd(server, count, body, ask):
    """What `ask(client, url)` returns while slow uploads arrive, and their statuses after that."""
    url = server.url + PATH
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        slow = [asyncio.create_task(status_of(client, url, body())) for _ in range(count)]
        while arriving(server) < min(count, 8) and not all(task.done() for task in slow):
            await asyncio.sleep(0.01)
        await asyncio.sleep(uploads.YOUNG + 0.1)
        answered = await ask(client, url)
        ended = [task.result() for task in slow if task.done()]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return answered, ended


def test_slow_uploads_take_no_place_of_others(recogniser, talk, monkeypatch):
    monkeypatch.setattr(uploads, "YOUNG", 0.2)

    async def ask(client, url):
        return [await status_of(client, url, form(talk)) for _ in range(5)]

    with served(recogniser, ServeOptions(limits=Limits(max_uploads=2))) as server:
        # 8 uploads may arrive at once: here they do, and others give way
        for count in (7, 8, 30):
            answers, ended = asyncio.run(crowd(server, count, lambda: drops(0.1), ask))
            assert [status for status, _ in answers] == [200] * 5
            assert {status for status, _ in ended} <= {503}
            assert until(lambda: not arriving(server))


def test_nothing_is_pending_when_a_server_of_the_tests_has_ended(recogniser, caplog):
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        f"Content-Type: {BOUNDARY['Content-Type']}\r\n\r\n"
    )
    with served(recogniser, ServeOptions(limits=Limits(upload_seconds=0.1))) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head.encode())
            assert b" 408 " in client.recv(1000)  # the server waits for the rest before it closes
    del server
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_uploads_that_are_not_slow_do_not_give_way(recogniser, talk, monkeypatch):
    monkeypatch.setattr(uploads, "YOUNG", 0.2)

    async def ask(client, url):
        return await status_of(client, url, form(talk))

    with served(recogniser, ServeOptions(limits=Limits(max_uploads=1))) as server:
        body = lambda: drops(0.02, 1 << 12)  # noqa: E731
        (status, message), ended = asyncio.run(crowd(server, 4, body, ask))
        assert (status, ended) == (503, [])
        assert "4 uploads arrive at once" in message


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(upload_seconds=0.5), "the upload took longer than 0.5 s"),
        (Limits(idle_seconds=0.2), "no data for 0.2 s"),
    ],
)
def test_an_upload_that_takes_too_long_is_ended(recogniser, limits, message):
    pause = 0.05 if limits.upload_seconds < 1 else 5

    async def one(url):
        async with aiohttp.ClientSession() as client:
            return await status_of(client, url, drops(pause))

    with served(recogniser, ServeOptions(limits=limits)) as server:
        status, text = asyncio.run(one(server.url + PATH))
    assert status in (0, 408)  # aiohttp's client may lose the answer while it sends
    assert status == 0 or message in text


def test_uploads_together_have_the_memory_of_all_places(recogniser):
    limits = Limits(max_uploads=1, max_upload_bytes=1_000_000)

    async def two(server):
        url = server.url + PATH

        async def large():
            yield form(bytes(700_000))[:700_000]
            await asyncio.sleep(20)

        async with aiohttp.ClientSession() as client:
            first = asyncio.create_task(status_of(client, url, large()))
            received = server.server._transcriptions._transfers
            while received._room > 400_000:
                await asyncio.sleep(0.01)
            second = await status_of(client, url, form(bytes(700_000)))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            return second

    with served(recogniser, ServeOptions(limits=limits)) as server:
        status, text = asyncio.run(two(server))
        assert (status, "no memory left for uploads" in text) == (503, True)
        assert until(lambda: server.server._transcriptions._transfers._room == 1_000_000)
