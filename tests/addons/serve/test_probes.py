"""/live and /ready, and the end of a server behind a load balancer."""

import asyncio
import json
import os
import signal
import socket
import threading
import time

import aiohttp
import pytest

from tests.addons.listen.conftest import write_model
from tests.addons.serve.held_turns import held_turns
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, of_type, sentences, served, speak
from tests.support.serve.processes import server_process
from tests.support.serve.raw_clients import until
from tests.support.serve.strangers import FORM, PATH
from wenet_uio.addons.serve import engine as engine_module
from wenet_uio.addons.serve.app import Server
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.server_loop import is_listening, serve

BODY = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n%s\r\n--x--\r\n'


async def ask(url, path):
    async with aiohttp.ClientSession() as client, client.get(url + path) as answer:
        return answer.status, await answer.json()


def probe_answer(server, path):
    return asyncio.run(ask(server.url, path))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("probes") / "bursts")


def test_a_server_that_waits_for_clients_lives_and_is_ready(server):
    assert (
        probe_answer(server, "/live") == probe_answer(server, "/ready") == (200, {"status": "ok"})
    )


def test_a_server_whose_step_hangs_does_not_live_until_the_step_ends(
    recogniser, speech, monkeypatch
):
    go_on = threading.Event()
    advance = engine_module.advance

    def hang(streams):
        go_on.wait(60)
        advance(streams)

    with served(recogniser, ServeOptions(limits=Limits(hung_seconds=0.2))) as server:
        monkeypatch.setattr(engine_module, "advance", hang)
        speaking = threading.Thread(target=lambda: asyncio.run(speak(server.socket_url, speech)))
        speaking.start()
        assert until(lambda: probe_answer(server, "/live")[0] == 500)
        for path, status in (("/ready", 503), ("/live", 500)):
            found, body = probe_answer(server, path)
            assert (found, body["status"]) == (status, "failed")
            assert "streams: at one piece of work for" in body["reasons"][0]
        assert probe_answer(server, "/health")[0] == 500
        calm = vars(server.server)["_engine"].calm
        assert not calm.is_set()  # recordings wait for the stream
        go_on.set()
        speaking.join(60)
        assert until(calm.is_set)
        assert until(lambda: probe_answer(server, "/live")[0] == 200)


def test_a_server_whose_step_hangs_still_stops(recogniser, speech, monkeypatch):
    go_on, hangs = threading.Event(), threading.Event()

    def hang(_):
        hangs.set()
        go_on.wait(120)
        raise SystemExit  # nobody hears this thread any more

    monkeypatch.setattr(engine_module, "advance", hang)
    monkeypatch.setattr("wenet_uio.addons.serve.app.JOIN_SECONDS", 0.1)

    async def speak_in_vain(url):
        async with aiohttp.ClientSession() as client, client.ws_connect(url) as stream:
            await stream.send_json(START)
            await stream.send_bytes(speech.tobytes())
            await asyncio.to_thread(hangs.wait, 60)

    with served(recogniser, ServeOptions()) as server:  # its end is waited for for a minute
        asyncio.run(speak_in_vain(server.socket_url))
    go_on.set()


def test_a_server_whose_recording_hangs_does_not_live(recogniser, held, speech):
    async def hung():
        async with aiohttp.ClientSession() as client:
            posting = asyncio.create_task(
                client.post(server.url + PATH, data=BODY % encoded(speech), headers=FORM)
            )
            while (await ask(server.url, "/live"))[0] == 200:
                await asyncio.sleep(0.05)
            body = (await ask(server.url, "/live"))[1]
            held.set()
            assert (await posting).status == 200
            while (await ask(server.url, "/live"))[0] != 200:
                await asyncio.sleep(0.05)
            return body

    with served(recogniser, ServeOptions(limits=Limits(hung_seconds=0.2))) as server:
        body = asyncio.run(hung())
    assert "recordings: at one piece of work for" in body["reasons"][0]


def test_a_server_whose_turn_of_recordings_hangs_does_not_live_until_it_ends(recogniser):
    with served(recogniser, ServeOptions(limits=Limits(hung_seconds=0.2))) as server:
        with held_turns(server.server._transcriptions._turns):
            assert until(lambda: probe_answer(server, "/live")[0] == 500)
            (reason,) = probe_answer(server, "/live")[1]["reasons"]
        assert reason.startswith("turns of recordings: at one piece of work for")
        assert until(lambda: probe_answer(server, "/live")[0] == 200)


def test_a_server_whose_thread_of_recordings_has_died_does_not_live(recogniser):
    with served(recogniser) as server:
        turns = server.server._transcriptions._turns
        turns.stop()
        turns.join()
        reasons = ["recordings: the thread has ended"]
        assert probe_answer(server, "/live") == (500, {"status": "failed", "reasons": reasons})


def test_a_server_whose_thread_of_streams_has_died_does_not_live(recogniser):
    with served(recogniser) as server:
        engine = vars(server.server)["_engine"]
        engine.stop()
        engine.join()
        assert probe_answer(server, "/live") == (
            500,
            {"status": "failed", "reasons": ["streams: the thread has ended"]},
        )
        assert probe_answer(server, "/ready")[0] == 503


def test_a_server_without_a_place_lives_and_is_not_ready(recogniser, speech, held):
    async def full():
        async with aiohttp.ClientSession() as client:
            async with client.ws_connect(server.socket_url) as stream:
                await stream.send_json(START)
                await stream.receive_json()
                yield await ask(server.url, "/ready")
                yield await ask(server.url, "/live")
            posting = asyncio.create_task(
                client.post(server.url + PATH, data=BODY % encoded(speech), headers=FORM)
            )
            while (await ask(server.url, "/ready"))[0] == 200:
                await asyncio.sleep(0.05)
            yield await ask(server.url, "/ready")
            held.set()
            await posting
            yield await ask(server.url, "/ready")

    async def answers():
        return [answer async for answer in full()]

    limits = Limits(max_clients=1, max_uploads=1)
    with served(recogniser, ServeOptions(limits=limits)) as server:
        streams, live, recordings, after = asyncio.run(answers())
    assert streams[0] == recordings[0] == 503
    assert streams[1]["reasons"] == ["1 clients are connected (--max_clients)"]
    assert recordings[1]["reasons"] == ["1 recordings wait (--max_uploads)"]
    assert live[0] == after[0] == 200


def test_after_sigterm_a_server_is_not_ready_serves_on_and_ends_when_its_streams_have_ended(
    model, speech
):
    async def drain(server):
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(server.socket_url) as early,
        ):
            await early.send_json(START)
            await early.receive_json()
            server.send(signal.SIGTERM)
            while (await ask(server.url, "/ready"))[0] == 200:
                await asyncio.sleep(0.02)
            ready, live = await ask(server.url, "/ready"), await ask(server.url, "/live")
            late = await speak(server.socket_url, speech)

            with pytest.raises(aiohttp.ClientConnectionError):
                while await ask(server.url, "/ready"):
                    await asyncio.sleep(0.02)

            # The early stream sends its audio only now, and still ends by itself.
            await early.send_bytes(speech.tobytes())
            await early.send_json({"signal": "end"})
            received = [json.loads(message.data) async for message in early]
            return ready, live, late, received, early.close_code

    with server_process(model, "--drain_seconds", "1.5", "--finish_seconds", "60") as server:
        ready, live, late, received, code = asyncio.run(drain(server))
        begin = time.monotonic()
        assert server.wait() == 0
        seconds = time.monotonic() - begin
    assert ready == (503, {"status": "failed", "reasons": ["the server stops"]})
    assert live[0] == 200
    assert sentences(late) == sentences(received) != [""]
    assert received[-1]["type"] == "speech_end"
    assert code == aiohttp.WSCloseCode.OK
    assert seconds < 30  # and not those of --finish_seconds
    assert "warning" not in "".join(server.log)


def test_a_server_that_drains_lets_no_connection_wait_for_a_next_request(recogniser):
    async def two_answers():
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{server.url}/health") as answer:
                before = answer.headers.get("Connection")
            vars(server.server)["_draining"] = True
            async with client.get(f"{server.url}/health") as answer:
                return before, answer.headers.get("Connection")

    with served(recogniser) as server:
        assert asyncio.run(two_answers()) == (None, "close")


def serve_in_this_process(recogniser, options, visit, unix_socket=None):
    """Serve until `visit`, a coroutine function, has ended and a signal of it has come."""

    async def both():
        server = Server(recogniser, "bursts", options)
        serving = asyncio.create_task(serve(server, "127.0.0.1", 0, None, unix_socket))
        visited = await visit(server)
        await asyncio.wait_for(serving, 60)
        return visited

    return asyncio.run(both())


async def visit_path(path, samples):
    """Stream over a socket of the file system; return the messages and the code of the end."""
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession(connector=connector) as client:
        while not path.exists():
            await asyncio.sleep(0.01)
        async with client.get("http://asr.example/ready") as answer:
            assert answer.status == 200
        async with client.ws_connect("http://asr.example/") as stream:
            await stream.send_json(START)
            await stream.send_bytes(samples.tobytes())
            received = [await stream.receive_json(), await stream.receive_json()]
            os.kill(os.getpid(), signal.SIGTERM)
            received += [json.loads(message.data) async for message in stream]
            return received, stream.close_code


def test_streams_that_go_on_after_their_time_are_ended_with_their_texts(
    recogniser, speech, tmp_path
):
    received, code = serve_in_this_process(
        recogniser,
        ServeOptions(finish_seconds=0.2),
        lambda _: visit_path(tmp_path / "asr", speech),
        str(tmp_path / "asr"),
    )
    assert of_type(received, "final_result")
    assert received[-1]["type"] == "speech_end"
    assert code == aiohttp.WSCloseCode.GOING_AWAY


def test_ctrl_c_ends_the_drain(recogniser):
    async def interrupt(server):
        await asyncio.sleep(0.5)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.1)

    options = ServeOptions(drain_seconds=600, finish_seconds=600)
    serve_in_this_process(recogniser, options, interrupt)


def test_a_socket_of_the_file_system_is_removed_at_the_end_also_one_that_was_left(
    recogniser, speech, tmp_path
):
    path = tmp_path / "asr"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()

    async def visit(_):
        while not is_listening(str(path)):
            await asyncio.sleep(0.01)
        return await visit_path(path, speech)

    received, _ = serve_in_this_process(recogniser, ServeOptions(), visit, str(path))
    assert received[-1]["type"] == "speech_end"
    assert not path.exists()


def test_a_path_that_cannot_be_listened_on_is_named(recogniser, tmp_path):
    (tmp_path / "file").write_text("mine")
    taken = socket.socket(socket.AF_UNIX)
    taken.bind(str(tmp_path / "taken"))
    taken.listen()
    for name, message in (
        ("file", "already in use"),
        ("taken", "another server listens there"),
        ("none/asr", "No such file or directory"),
        ("long" * 40, "too long"),
    ):
        path = str(tmp_path / name)
        with pytest.raises(OSError, match=f"--unix_socket {path}: .*{message}"):
            asyncio.run(serve(Server(recogniser, "m", ServeOptions()), "", 0, None, path))
    taken.close()
    assert (tmp_path / "file").read_text() == "mine"
