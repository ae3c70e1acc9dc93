import asyncio
import json
import socket
import sys
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.addons.listen.conftest import write_model
from tests.addons.serve.conftest import NO_ENDS
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, of_type, openai_client, sentences, served, speak
from wenet_uio import load_model
from wenet_uio.addons.serve.options import ServeOptions


def get(url, **arguments):
    """(status, headers, text) of a GET request."""

    async def request():
        async with aiohttp.ClientSession() as client, client.get(url, **arguments) as answer:
            return answer.status, answer.headers, await answer.text()

    return asyncio.run(request())


def metric(server, name, **headers):
    lines = get(f"{server.url}/metrics", headers=headers)[2].splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith((f"{name} ", f"{name}{{"))
    )


def test_health_says_what_a_client_must_know(server):
    status, _, text = get(f"{server.url}/health")
    health = json.loads(text)
    assert status == 200
    assert health["limits"]["max_clients"] == 64
    del health["limits"]
    assert health == {
        "status": "ok",
        "model": "model",
        "streaming": True,
        "reason": "",
        "sample_rate": 16000,
        "clients": 0,
        "needs_token": False,
    }


def test_a_model_with_full_context_streams_windows_and_says_why(tmp_path, speech):
    whole = load_model(
        write_model(tmp_path / "whole", use_dynamic_chunk=False, causal=False), device="cpu"
    )
    with served(whole, ServeOptions(endpoints={})) as server:
        health = json.loads(get(f"{server.url}/health")[2])
        received = asyncio.run(speak(server.socket_url, speech, packet=4000, pause=0.1))
    assert not health["streaming"]
    assert "full context" in health["reason"] == received[0]["reason"]
    assert of_type(received, "partial_result")
    assert sentences(received)[0]


def test_metrics_count_streams_audio_and_refusals(recogniser, speech):
    with served(recogniser, ServeOptions(endpoints={})) as server:
        asyncio.run(speak(server.socket_url, speech))
        asyncio.run(speak(server.socket_url, speech[:1], {"signal": "start", "nbest": 0}))
        assert metric(server, "wenet_uio_streams_total") == 1
        assert metric(server, "wenet_uio_utterances_total") == 1
        assert metric(server, "wenet_uio_audio_seconds_total") == pytest.approx(6)
        assert metric(server, "wenet_uio_step_streams_count") > 1
        assert metric(server, "wenet_uio_clients") == 0
        assert metric(server, "process_resident_memory_bytes") > 1e6


def test_the_page_may_load_nothing_from_other_hosts(server):
    status, headers, text = get(f"{server.url}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "<html" in text or "<!doctype html>" in text.lower()


@pytest.mark.parametrize(
    "path", ["/static/none.js", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/nothing", "/v1"]
)
def test_an_unknown_path_is_not_found(server, path):
    status, _, text = get(server.url + path)
    assert status == 404
    assert json.loads(text)["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/audio/transcriptions"),
        ("GET", "/models"),
        ("GET", "/models/model"),
        ("POST", "/realtime/client_secrets"),
        ("POST", "/v1/v1/audio/transcriptions"),
        ("POST", "/v1/audio/speech"),
        ("DELETE", "/v1/models/model"),
        ("POST", "/"),
    ],
)
def test_a_path_that_is_not_served_is_named_with_the_base_url_of_openais_clients(
    server, method, path
):
    async def request():
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, server.url + path, data=b"x" * 100_000) as answer,
        ):
            return answer.status, (await answer.json())["error"]["message"]

    status, message = asyncio.run(request())
    assert status == 404
    assert message == (
        f"{method} '{path}' is not served; the base URL for OpenAI's clients is {server.url}/v1"
    )


def test_openais_clients_with_a_base_url_without_v1_are_told_to_add_it(server, speech):
    import openai
    from websockets.exceptions import InvalidStatus

    advice = f"base URL for OpenAI's clients is {server.url}/v1"
    client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError, match=advice):
        client.audio.transcriptions.create(model="any", file=("talk.wav", encoded(speech)))
    with pytest.raises(openai.NotFoundError, match=advice):
        client.models.list()
    with pytest.raises(InvalidStatus) as caught, client.realtime.connect(model="any"):
        pass
    assert caught.value.response.status_code == 404
    assert advice in caught.value.response.body.decode()


def test_the_model_is_listed_and_found_by_its_name(server, recogniser):
    import openai

    client = openai_client(server.url)
    (listed,) = client.models.list()
    assert listed.id == "model"
    assert client.models.retrieve("model") == listed
    with pytest.raises(openai.NotFoundError, match="'whisper-1' does not exist; this server has"):
        client.models.retrieve("whisper-1")
    with served(recogniser, NO_ENDS, name="org/model") as other:
        assert json.loads(get(f"{other.url}/v1/models/org/model")[2])["id"] == "org/model"
    assert get(f"{server.url}/v1/models/")[0] == 404


@pytest.fixture(scope="module")
def detector_of_module():
    """What a server that a module starts finds in place of the voice detector."""
    return sys.modules.get("silero_vad", "not hidden")


def test_servers_of_a_module_start_without_the_voice_detector(detector_of_module):
    assert detector_of_module is None


@pytest.fixture(scope="module")
def guarded(recogniser):
    options = ServeOptions(endpoints={}, token="secret", origins=("https://friend.example",))
    with served(recogniser, options) as server:
        yield server


def test_without_the_token_nothing_but_health_and_the_page_is_served(guarded, speech):
    bearer = {"Authorization": "Bearer secret"}
    for path in ("/health", "/"):
        assert get(guarded.url + path)[0] == 200
    for path in ("/metrics", "/v1/models", "/v1/models/model"):
        assert get(guarded.url + path)[0] == 401
        assert get(guarded.url + path, headers={"Authorization": "Bearer wrong"})[0] == 401
        assert get(guarded.url + path, headers=bearer)[0] == 200
    for start in (START, START | {"token": "wrong"}, START | {"token": 5}):
        (refusal,) = asyncio.run(speak(guarded.socket_url, speech, start))
        assert refusal["status"] == "failed"
        assert "token" in refusal["message"]
    assert sentences(asyncio.run(speak(guarded.socket_url, speech, START | {"token": "secret"})))


async def post_empty(url, headers):
    async with (
        aiohttp.ClientSession() as client,
        client.post(url, data={"a": "b"}, headers=headers) as answer,
    ):
        return answer.status, answer.headers.get("Access-Control-Allow-Origin")


def test_pages_of_other_origins_are_refused_unless_they_are_allowed(guarded, speech):
    url = f"{guarded.url}/v1/audio/transcriptions"
    bearer = {"Authorization": "Bearer secret"}
    own = guarded.url
    for origin, status, allowed in (
        ("https://evil.example", 401, None),
        ("null", 401, None),
        ("http://[", 401, None),
        (own, 400, None),  # the form has no file
        (own.replace("127.0.0.1", "localhost"), 400, None),
        ("https://friend.example", 400, "https://friend.example"),
    ):
        host = {"Host": urlsplit(origin).netloc} if "localhost" in origin else {}
        assert asyncio.run(post_empty(url, bearer | host | {"Origin": origin})) == (
            status,
            allowed,
        ), origin

    async def connect(origin):
        async with aiohttp.ClientSession() as client:
            socket = await client.ws_connect(guarded.socket_url, headers={"Origin": origin})
            await socket.close()

    asyncio.run(connect(own))
    asyncio.run(connect("https://friend.example"))
    with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
        asyncio.run(connect("https://evil.example"))


def test_a_page_whose_host_name_leads_to_this_machine_is_not_our_page(guarded):
    port = urlsplit(guarded.url).port
    for name in (f"evil.example:{port}", "evil.example", f"127.0.0.1.evil.example:{port}"):
        headers = {"Authorization": "Bearer secret", "Host": name, "Origin": f"http://{name}"}
        assert asyncio.run(post_empty(f"{guarded.url}/v1/audio/transcriptions", headers)) == (
            401,
            None,
        )


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:{port}", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:{port}", 421),
        ("", 421),
        ("[", 421),
        ("192.168.1.1", 421),
        ("localhost:{port}", 200),
        ("LOCALHOST", 200),
        ("localhost.:{port}", 200),
        ("wenet.localhost", 200),
        ("127.0.0.1", 200),
        ("127.0.1.1:80", 200),
        ("[::1]:{port}", 200),
        ("{own_name}:{port}", 200),
        ("friend.example", 200),  # a proxy hands on the name of an allowed origin
    ],
)
def test_a_server_at_a_loopback_address_answers_to_local_names_only(guarded, host, status):
    port = urlsplit(guarded.url).port
    host = host.format(port=port, own_name=socket.gethostname())
    for path in ("/health", "/"):
        assert get(guarded.url + path, headers={"Host": host})[0] == status

    async def connect():
        async with aiohttp.ClientSession() as client:
            socket = await client.ws_connect(guarded.socket_url, headers={"Host": host})
            await socket.close()

    if status == 200:
        asyncio.run(connect())
    else:
        with pytest.raises(aiohttp.WSServerHandshakeError, match="421"):
            asyncio.run(connect())


def test_a_request_without_a_host_is_answered(guarded):
    """HTTP/1.0 has no such header; browsers always send it."""
    parts = urlsplit(guarded.url)
    with socket.create_connection((parts.hostname, parts.port)) as raw:
        raw.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b"200 OK" in raw.recv(1000)


def test_a_server_that_allows_all_origins_answers_to_every_name(recogniser):
    with served(recogniser, ServeOptions(origins=("*",))) as server:
        assert get(f"{server.url}/health", headers={"Host": "any.example"})[0] == 200


def test_a_browser_may_ask_before_it_sends_a_token_from_an_allowed_origin(guarded):
    async def ask(origin):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        url = f"{guarded.url}/v1/audio/transcriptions"
        async with (
            aiohttp.ClientSession() as client,
            client.options(url, headers=headers) as answer,
        ):
            return answer.status, answer.headers.get("Access-Control-Allow-Origin")

    assert asyncio.run(ask("https://friend.example")) == (204, "https://friend.example")
    assert asyncio.run(ask("https://evil.example")) == (401, None)


def test_hot_words_that_the_units_cannot_spell_are_named_to_the_client_and_not_in_the_log(
    server, speech, caplog
):
    ready, *rest = asyncio.run(
        speak(server.socket_url, speech, START | {"hot_words": ["abc", "Geheimnis"]})
    )
    assert ready["warnings"] == ["the units cannot spell: Geheimnis"]
    assert sentences(rest)[0]
    assert "Geheimnis" not in caplog.text


def test_an_allowed_page_may_send_the_headers_that_the_openai_package_adds(guarded):
    async def ask():
        headers = {
            "Origin": "https://friend.example",
            "Access-Control-Request-Headers": "authorization, x-stainless-os",
        }
        async with (
            aiohttp.ClientSession() as client,
            client.options(f"{guarded.url}/v1/audio/transcriptions", headers=headers) as answer,
        ):
            return answer.headers["Access-Control-Allow-Headers"]

    assert asyncio.run(ask()) == "authorization, x-stainless-os"
