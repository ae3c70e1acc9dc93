"""SIGHUP: model, tokens and certificate are read again while streams go on."""

import asyncio
import gc
import json
import logging
import os
import pty
import signal
import ssl
import threading
import weakref

import aiohttp
import pytest
import torch

from tests.addons.listen.conftest import write_model
from tests.addons.serve.test_serve import self_signed
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.processes import server_process
from tests.support.serve.raw_clients import until
from tests.support.serve.strangers import FORM, PATH
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.reload import Reloading, Sources
from wenet_uio.addons.serve.tls import Certificate

BODY = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n%s\r\n--x--\r\n'


async def post(url, samples):
    async with (
        aiohttp.ClientSession() as client,
        client.post(url + PATH, data=BODY % encoded(samples), headers=FORM) as answer,
    ):
        return (await answer.json())["text"]


def change_weights(folder):
    """Other weights, with which the same audio has another text."""
    weights = torch.load(folder / "final.pt", weights_only=True)
    torch.manual_seed(7)
    torch.nn.init.normal_(weights["ctc.ctc_lo.weight"], std=2.0)
    torch.save(weights, folder / "new.pt")
    (folder / "new.pt").replace(folder / "final.pt")


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "bursts")


def test_sighup_reads_model_tokens_and_certificate_again_and_an_open_stream_goes_on(
    folder, tmp_path, speech
):
    certificate, key = self_signed(tmp_path)
    (tmp_path / "tokens").write_text("old\nstays\n")
    (tmp_path / "next").mkdir()
    options = ("--certificate", certificate, "--key", key, "--token_file", tmp_path / "tokens")
    trusted = ssl.create_default_context(cafile=certificate)

    async def text_of(server, token, context):
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.ws_connect(server.socket_url) as stream,
        ):
            await stream.send_json(START | {"token": token})
            await stream.send_bytes(speech.tobytes())
            await stream.send_json({"signal": "end"})
            received = [json.loads(message.data) async for message in stream]
            return sentences(received) or received

    async def reload(server):
        connector = aiohttp.TCPConnector(ssl=trusted)
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.ws_connect(server.socket_url) as stream,
        ):
            await stream.send_json(START | {"token": "old"})
            await stream.send_bytes(speech[:48000].tobytes())
            await stream.receive_json()
            before = await text_of(server, "old", trusted)

            change_weights(folder)
            (tmp_path / "tokens").write_text("stays\nnew streams=1\n")
            for new, old in zip(self_signed(tmp_path / "next"), (certificate, key), strict=True):
                new.replace(old)
            server.send(signal.SIGHUP)
            while "reloaded: model\n" not in server.log:
                await asyncio.sleep(0.05)

            await stream.send_bytes(speech[48000:].tobytes())
            await stream.send_json({"signal": "end"})
            open_stream = sentences([json.loads(message.data) async for message in stream])
        newly_trusted = ssl.create_default_context(cafile=certificate)
        after = [await text_of(server, token, newly_trusted) for token in ("stays", "new", "old")]
        return before, open_stream, after

    with server_process(folder, *options, "--rule2", "0") as server:
        before, open_stream, after = asyncio.run(reload(server))
        server.send(signal.SIGTERM)
        assert server.wait() == 0
    assert open_stream == before != [""]
    assert after[0] == after[1] != before
    assert "the token is missing or wrong" in after[2][0]["message"]
    reloaded = [line.strip() for line in server.log if line.startswith("reloaded")]
    assert reloaded == ["reloaded: tokens", "reloaded: certificate", "reloaded: model"]


def fails(*_):
    raise ValueError("it is broken")


@pytest.mark.parametrize("broken", ["tokens", "certificate", "model"])
def test_a_part_that_cannot_be_read_again_stays_as_it_was_and_is_named(
    recogniser, folder, tmp_path, caplog, broken, speech
):
    caplog.set_level(logging.INFO)
    certificate = Certificate(*map(str, self_signed(tmp_path)))
    if broken == "certificate":
        (tmp_path / "key.pem").write_text("no key")
    sources = Sources(
        load_model=fails if broken == "model" else lambda: recogniser,
        read_tokens=fails if broken == "tokens" else lambda: "new",
        certificate=certificate,
    )

    async def reload(server):
        reloading = Reloading(server, sources)
        reloading.ask()
        await vars(reloading)["_running"]

    with served(recogniser, ServeOptions(token="old")) as running:
        loop = vars(vars(running.server)["_engine"])["_loop"]
        asyncio.run_coroutine_threadsafe(reload(running.server), loop).result(60)
        token = "old" if broken == "tokens" else "new"
        assert sentences(asyncio.run(speak(running.socket_url, speech, START | {"token": token})))
    parts = {"tokens", "certificate", "model"}
    reloaded = {part for part in parts if f"reloaded: {part}" in caplog.messages}
    assert reloaded == parts - {broken}
    (error,) = [message for message in caplog.messages if message.startswith("error")]
    assert error.startswith(f"error: reload: the old {broken} stays in use: ")


def test_files_that_change_while_they_are_read_are_read_once_more(recogniser):
    """However often SIGHUP comes meanwhile."""
    go_on, begun = threading.Event(), []

    def load():
        begun.append(1)
        go_on.wait(60)
        return recogniser

    async def reload(server):
        reloading = Reloading(server, Sources(load, lambda: None, None))
        reloading.ask()
        while not begun:
            await asyncio.sleep(0.01)
        for _ in range(3):
            reloading.ask()
        go_on.set()
        await vars(reloading)["_running"]

    with served(recogniser, ServeOptions()) as running:
        loop = vars(vars(running.server)["_engine"])["_loop"]
        asyncio.run_coroutine_threadsafe(reload(running.server), loop).result(60)
    assert len(begun) == 2


def test_a_wrong_line_of_the_token_file_leaves_all_old_tokens(recogniser, speech):
    with served(recogniser, ServeOptions(token="old")) as running:
        with pytest.raises(ValueError, match="stream: expected name, streams or seconds_a_minute"):
            running.server.use_tokens("new\nother stream=3")
        with pytest.raises(ValueError, match="the token is empty"):
            running.server.use_tokens("")
        assert sentences(asyncio.run(speak(running.socket_url, speech, START | {"token": "old"})))


def test_an_old_model_is_let_go_when_its_last_stream_and_recording_have_ended(
    recogniser, folder, speech
):
    go_on = threading.Event()
    old, texts = [], []

    def load_old():
        """A model whose recordings are not done before the event is set."""
        model = load_model(folder, device="cpu")
        old.append(weakref.ref(model.recogniser.model))
        texts.append(model.transcribe(encoded(speech)).text)
        iterate = type(model).iterate

        def later(*arguments):
            go_on.wait(60)
            yield from iterate(*arguments)

        model.iterate = later.__get__(model)
        return model

    async def visit():
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(running.socket_url) as stream,
        ):
            posting = asyncio.create_task(post(running.url, speech))
            await stream.send_json(START)
            await stream.receive_json()
            while running.server._models.unanswered == 0:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(use, load_model(folder, device="cpu"))
            await stream.send_bytes(speech.tobytes())
            await stream.send_json({"signal": "end"})
            streamed = sentences([json.loads(message.data) async for message in stream])
            go_on.set()
            return streamed, await posting

    with served(recogniser, ServeOptions(endpoints={})) as running:
        loop = vars(vars(running.server)["_engine"])["_loop"]

        def use(model):
            started = running.server.use_model(model)
            asyncio.run_coroutine_threadsafe(started, loop).result(60)

        go_on.set()  # the server tries the model
        use(load_old())
        go_on.clear()
        before = asyncio.run(speak(running.socket_url, speech))
        change_weights(folder)
        streamed, transcribed = asyncio.run(visit())
        after = asyncio.run(speak(running.socket_url, speech))
        later = asyncio.run(post(running.url, speech))
        assert until(lambda: len(running.server._models._all) == 1)
        assert until(lambda: old[0]() is None)
    gc.unfreeze()
    assert [transcribed] == texts
    assert later not in ("", transcribed)
    assert streamed == sentences(before) != sentences(after)


def test_a_server_whose_terminal_has_gone_drains(folder):
    """Without a terminal, SIGHUP comes from a person or a program that wants a reload."""
    ours, terminal = pty.openpty()
    with server_process(folder, stdin=terminal, stdout=terminal) as server:
        os.close(terminal)
        server.send(signal.SIGHUP)
        assert until(lambda: "reloaded: model\n" in server.log)
        os.close(ours)
        server.send(signal.SIGHUP)
        assert server.wait() == 0
    assert server.log.count("reloaded: model\n") == 1
