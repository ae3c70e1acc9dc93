"""Ids of requests, and the access log."""

import asyncio
import io
import json
import os
import re
import socket
import threading

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, served, speak
from tests.support.serve.raw_clients import until
from tests.support.serve.strangers import PATH
from wenet_uio.addons.serve import visits
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.visits import ID, AccessLog, Visit, to_text

GENERATED = re.compile(r"[0-9a-f]{32}")


def ids_of(url, *given_ids):
    """The ids that the server gives back."""

    async def ask():
        async with aiohttp.ClientSession() as client:
            answers = []
            for given_id in given_ids:
                headers = {} if given_id is None else {"X-Request-ID": given_id}
                async with client.get(url, headers=headers) as answer:
                    answers.append(answer.headers["X-Request-ID"])
            return answers

    return asyncio.run(ask())


def test_an_id_of_a_client_comes_back_and_every_other_request_gets_one(server):
    kept = ("7c3f", "a-b_c.d:e/f+g=h@i", "x" * 128)
    for path in ("/health", "/nothing", "/static/page.js", "/v1/models"):
        assert ids_of(server.url + path, *kept) == list(kept)
        first, second = ids_of(server.url + path, None, None)
        assert first != second
        assert GENERATED.fullmatch(first)


@pytest.mark.parametrize(
    "given", ["", " ", "x" * 129, "a b", "a;b", 'a"b', "<b>", "%0d", "é", "a,b"]
)
def test_an_id_of_another_form_is_replaced(server, given):
    assert GENERATED.fullmatch(ids_of(f"{server.url}/health", given)[0])


def test_no_id_ends_a_line_or_leaves_ascii():
    taken = [letter for letter in map(chr, range(0x3000)) if ID.fullmatch(letter)]
    assert len(taken) == 26 + 26 + 10 + 8
    assert all(letter.isascii() and letter.isprintable() for letter in taken)
    assert not ID.fullmatch("a\n")


def test_a_websocket_a_refusal_and_an_expectation_that_fails_have_ids_too(recogniser, speech):
    async def handshake(url, headers):
        async with aiohttp.ClientSession() as client, client.ws_connect(url, headers=headers) as ws:
            return ws._response.headers["X-Request-ID"]

    with served(recogniser, ServeOptions(token="secret")) as running:
        assert asyncio.run(handshake(running.socket_url, {"X-Request-ID": "mine"})) == "mine"
        assert ids_of(f"{running.url}/metrics", "mine") == ["mine"]
        port = int(running.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(
                f"GET /health HTTP/1.1\r\nHost: localhost:{port}\r\nExpect: magic\r\n"
                "X-Request-ID: mine\r\n\r\n".encode()
            )
            answer = raw.recv(4096)
    assert b"417" in answer.splitlines()[0]
    assert b"X-Request-ID: mine" in answer


SECRET = "Geheimnis"


async def visit(url, content):
    """One request of each kind, with a secret wherever a client may write."""
    headers = {"Authorization": "Bearer good", "X-Request-ID": "mine", "User-Agent": SECRET}
    async with aiohttp.ClientSession(headers=headers) as client:
        for path in ("/health", "/live", f"/v1/models/{SECRET}", f"/{SECRET}?{SECRET}={SECRET}"):
            async with client.get(url + path):
                pass
        form = {"prompt": SECRET, "file": io.BytesIO(content)}
        async with client.post(f"{url}{PATH}?{SECRET}", data=form):
            pass
        form = {"file": io.BytesIO(content), "stream": "true"}
        async with client.post(url + PATH, data=form) as answer:
            await answer.read()
        async with client.post(url + PATH, data={SECRET: SECRET, "file": SECRET}):
            pass


@pytest.mark.parametrize("form", ["text", "json"])
def test_each_request_has_a_line_and_no_text_of_a_client_is_in_it(
    recogniser, speech, form, monkeypatch
):
    options = ServeOptions(endpoints={}, token="good name=page", access_log=form)
    read_end, write_end = os.pipe()
    with open(write_end, "w", buffering=1) as file:
        monkeypatch.setattr("sys.stdout", file)
        with served(recogniser, options) as running:
            monkeypatch.undo()
            asyncio.run(visit(running.url, encoded(speech)))
            url = f"{running.socket_url}/{SECRET}"
            asyncio.run(speak(url, speech, START | {"token": "good", "hot_words": ["abc"]}))
            asyncio.run(speak(url, speech, START | {"token": SECRET}))
            asyncio.run(speak(url, speech, {"signal": SECRET}))
    with open(read_end) as file:
        lines = file.read().splitlines()
    assert SECRET.lower() not in "\n".join(lines).lower()
    assert len(lines) == 9
    if form == "text":
        assert re.fullmatch(r"20\S+\+00:00 mine 127.0.0.1 GET /health 200 \d+\.\d+", lines[0])
        assert lines[3].endswith("token=page audio_seconds=6.0")
        return

    entries = [json.loads(line) for line in lines]
    assert [(entry["method"], entry["path"], entry["status"]) for entry in entries] == [
        ("GET", "/health", 200),
        ("GET", "/v1/models/{name}", 404),
        ("GET", "/{path}", 404),
        ("POST", PATH, 200),
        ("POST", PATH, 200),
        ("POST", PATH, 400),
        ("GET", "/{path}", 101),
        ("GET", "/{path}", 101),
        ("GET", "/{path}", 101),
    ]
    assert [entry.get("audio_seconds") for entry in entries[3:]] == [6, 6, None, 6, None, None]
    assert [entry.get("token") for entry in entries[3:]] == ["page"] * 4 + [None] * 2
    assert [entry.get("reason") for entry in entries[5:]] == [
        "refused",
        None,
        "wrong_token",
        "refused",
    ]
    assert [entry["close_code"] for entry in entries[6:]] == [1000, 1008, 1008]
    assert {entry["id"] for entry in entries[:6]} == {"mine"}


def test_a_failure_of_the_server_is_logged_with_the_id_of_its_request(
    recogniser, speech, monkeypatch, caplog
):
    def fail(*_):
        raise OSError("a fault of ours")

    with served(recogniser, ServeOptions()) as running:
        monkeypatch.setattr(running.server, "_account", fail)
        assert ids_of(f"{running.url}/v1/models", "mine") == ["mine"]
    assert "error: a request failed: GET /v1/models, id mine" in caplog.text


class SlowReader(io.StringIO):
    """A file whose reader begins to read when the event is set."""

    def __init__(self):
        super().__init__()
        self.reads = threading.Event()

    def write(self, text):
        self.reads.wait(60)
        return super().write(text)


def test_a_reader_that_is_slow_stops_nobody_and_lost_lines_are_counted(server, monkeypatch, caplog):
    monkeypatch.setattr(visits, "MOST_WAITING", 3)
    monkeypatch.setattr(visits, "describe", lambda *_: {"id": "mine"})
    file = SlowReader()
    access_log = AccessLog("json", file)

    for _ in range(20):
        access_log.add(make_mocked_request("GET", "/health"), Visit(), 200)
    file.reads.set()
    access_log.close()
    assert until(lambda: "lines are lost" in caplog.text)
    assert 3 <= len(file.getvalue().splitlines()) <= 5


def test_a_reader_that_has_gone_ends_the_access_log_and_not_the_server(
    recogniser, monkeypatch, caplog
):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("sys.stdout", Closed())
    with served(recogniser, ServeOptions(access_log="text")) as running:
        for _ in range(3):
            ids_of(f"{running.url}/health", None)
        assert until(lambda: "error: access log: it ends here: " in caplog.text)
    assert caplog.text.count("access log") == 1


def test_a_text_line_has_names_for_what_only_some_have():
    fields = {"id": "a", "seconds": 0.5, "reason": "max_seconds", "token": "page"}
    assert to_text(fields) == "a 0.5 token=page reason=max_seconds"
