"""Two servers behind a load balancer are started anew one after the other, while clients come."""

import asyncio
import io
import signal
import socket
from contextlib import ExitStack

import aiohttp
import pytest

from tests.addons.listen.conftest import write_model
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.balancer import LOOK, balancing
from tests.support.serve.clients import sentences, speak
from tests.support.serve.processes import server_process
from tests.support.serve.strangers import PATH

OPTIONS = ("--drain_seconds", "0.5", "--finish_seconds", "60", "--rule2", "0")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("rolling") / "bursts")


def free_ports(count):
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [listening.getsockname()[1] for listening in sockets]


async def post(url, content):
    async with (
        aiohttp.ClientSession() as client,
        client.post(url + PATH, data={"file": io.BytesIO(content)}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return [(await answer.json())["text"]]


@pytest.mark.parametrize(
    ("restarts", "clients", "pause"),
    [(1, 3, 0.02), pytest.param(4, 8, 0.1, marks=pytest.mark.all)],
)
def test_a_rolling_restart_loses_no_stream_and_refuses_no_request(
    model, speech, restarts, clients, pause
):
    """Each client comes again at once, so all streams of a moment are cut by a server that is not
    patient."""
    ports = free_ports(2)
    texts, recordings = [], []
    stopped = asyncio.Event()

    async def start(stack, port):
        return await asyncio.to_thread(
            stack.enter_context, server_process(model, *OPTIONS, "--port", port)
        )

    async def stream(url):
        while not stopped.is_set():
            texts.append(sentences(await speak(url.replace("http", "ws"), speech, pause=pause)))

    async def upload(url):
        while not stopped.is_set():
            recordings.append(await post(url, encoded(speech)))

    async def restart_in_turn(stack, servers, balancer):
        for number in range(restarts):
            port = ports[number % 2]
            before = len(texts)
            servers[port].send(signal.SIGTERM)
            assert await asyncio.to_thread(servers[port].wait) == 0
            assert "were not finished" not in "".join(servers[port].log)
            servers[port] = await start(stack, port)
            while port not in balancer.ready or len(texts) < before + clients:
                await asyncio.sleep(LOOK)

    async def session():
        with ExitStack() as stack:
            started = await asyncio.gather(*(start(stack, port) for port in ports))
            servers = dict(zip(ports, started, strict=True))
            async with balancing(ports) as (url, balancer):
                work = [asyncio.create_task(stream(url)) for _ in range(clients)]
                work.append(asyncio.create_task(upload(url)))
                restarting = asyncio.create_task(restart_in_turn(stack, servers, balancer))
                # A client that fails ends the test at once.
                await asyncio.wait([*work, restarting], return_when=asyncio.FIRST_COMPLETED)
                stopped.set()
                await asyncio.gather(*work, restarting)
                return balancer

    balancer = asyncio.run(session())
    assert balancer.refused == 0
    assert all(balancer.served.values())
    assert len(texts) > clients
    assert set(map(tuple, texts)) == {tuple(texts[0])} != {("",)}
    assert set(map(tuple, recordings)) == {tuple(recordings[0])} != {("",)}
