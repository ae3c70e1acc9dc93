import asyncio
import io
import json
import logging
import os
import re
import signal
import ssl
import subprocess
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from aiohttp.http_exceptions import BadStatusLine

from tests.addons.listen.conftest import bursts, write_model
from tests.support.serve.clients import START, of_type
from tests.support.serve.processes import server_process
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.serve import command as serve
from wenet_uio.addons.serve.app import Server
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.server_loop import FullLog, hide_message, is_fault_of_server
from wenet_uio.addons.serve.server_loop import serve as listen


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("serve") / "bursts")


@pytest.fixture
def started(model):
    """Start the server with options: `started("--port", "1")`."""
    return lambda *options: serve.main(["--model", str(model), *options])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--mode", "best"], "best"),
        (["--certificate", "cert.pem"], "--certificate and --key belong together"),
        (["--certificate", __file__, "--key", __file__], "no certificate with its key"),
        (["--token_file", "/dev/null"], "/dev/null: the token is empty"),
        (["--rule2", "-1"], "silence: expected 0 or more"),
        (
            ["--allow_origin", "example.org"],
            "--allow_origin: expected an origin such as https://example.org",
        ),
        (["--max_clients", "0"], "--max_clients: expected above 0, found 0"),
        (["--chunk_size", "0"], "chunk_size 0"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines reach this address"),
        (["--host", "::"], "--host ::: other machines reach this address"),
        (["--host", ""], "give --token_file, or --open to let everybody"),
        (["--host", "192.0.2.1"], "--host 192.0.2.1: other machines reach this address"),
        (["--host", "no.such.host.invalid"], "give --token_file, or --open"),
        (["--stream_batch", "0"], "--stream_batch"),
        (
            ["--partial_mode", "ctc_prefix_beam_search", "--mode", "rnnt_greedy_search"],
            "rnnt_greedy_search",
        ),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_served(started, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        started("--port", "0", *given)


def test_a_missing_token_file_and_a_port_in_use_are_named(started, unused_tcp_socket):
    with pytest.raises(OSError, match="none.txt"):
        started("--token_file", "none.txt")
    port = unused_tcp_socket.getsockname()[1]
    with pytest.raises(OSError, match=str(port)):
        started("--port", str(port))
    for given, message in (
        (["--port", "99999"], "--port 99999: "),
        (["--host", "192.0.2.1", "--open"], "--host 192.0.2.1 "),
    ):
        with pytest.raises(OSError, match=message):
            started(*given)
    with pytest.raises(OSError, match="none.pem"):
        started("--certificate", "none.pem", "--key", "none.pem")


def test_a_client_that_speaks_no_http_is_not_logged_and_other_failures_are(caplog):
    logger = logging.getLogger("somebody")
    logger.addFilter(is_fault_of_server)
    for error in (BadStatusLine("secret"), ValueError("a fault of ours")):
        logger.error("Error handling request", exc_info=error)
    assert "secret" not in caplog.text
    assert "ValueError" in caplog.text


@pytest.fixture
def unused_tcp_socket():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


def self_signed(folder):
    """A certificate of localhost, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *(
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_the_command_serves_with_tls_and_a_token_and_finishes_open_utterances_at_sigterm(
    model, tmp_path
):
    certificate, key = self_signed(tmp_path)
    Path(tmp_path / "token").write_text("secret\n")
    options = ("--certificate", certificate, "--key", key, "--token_file", tmp_path / "token")
    with server_process(model, *options) as server:
        serving = r"^serving bursts on https://127\.0\.0\.1:\d+$"
        assert re.search(serving, "".join(server.log), re.MULTILINE)
        received, after = asyncio.run(_stream_until_sigterm(server, certificate))
        assert server.wait() == 0
    assert "Traceback" not in "".join(server.log)
    final = json.loads(of_type(received, "final_result")[-1]["nbest"])[0]["sentence"]
    assert final
    assert received[-1]["type"] == "speech_end"
    assert after == aiohttp.WSCloseCode.GOING_AWAY


async def _stream_until_sigterm(server, certificate):
    context = ssl.create_default_context(cafile=certificate)
    samples = (bursts() * 32767).astype(np.int16)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client,
        client.ws_connect(server.url, headers={"Authorization": "Bearer secret"}) as socket,
    ):
        await socket.send_json(START)
        assert (await socket.receive_json())["type"] == "server_ready"
        await socket.send_bytes(samples.tobytes())
        received = [await socket.receive_json()]
        server.send(signal.SIGTERM)
        received += [json.loads(message.data) async for message in socket]
        return received, socket.close_code


def test_a_second_ctrl_c_ends_the_server_at_once_and_a_second_sigterm_does_not(model, monkeypatch):
    """`docker stop` and supervisors may send SIGTERM twice; a second Ctrl-C is a person who
    waits.
    """
    finishing = []

    async def finish(_):
        finishing.append(1)
        await asyncio.sleep(600)

    monkeypatch.setattr(Server, "finish", finish)

    async def signals(task):
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            assert not task.done()
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.3)

    async def session():
        server = Server(load_model(model, device="cpu"), "bursts", ServeOptions())
        task = asyncio.create_task(listen(server, "127.0.0.1", 0, None))
        await asyncio.sleep(0.5)
        await signals(task)
        await asyncio.wait_for(task, 20)

    asyncio.run(session())
    assert finishing


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "localhost", "::1"])
def test_an_address_of_this_machine_alone_needs_no_token(host):
    args = serve.parser().parse_args(["--model", "m", "--host", host])
    serve.check_access(args, serve.serve_options(args))


def test_a_server_for_all_machines_needs_a_token_or_open_and_prints_an_address_for_them(
    model, tmp_path
):
    (tmp_path / "tokens").write_text("secret\n")
    for access, status in ((["--token_file", tmp_path / "tokens"], 401), (["--open"], 200)):
        with server_process(model, "--host", "0.0.0.0", *access) as running:
            host, _, port = running.url.removeprefix("http://").rpartition(":")
            assert host not in ("localhost", "127.0.0.1", "0.0.0.0")
            for reached in (host, "127.0.0.1"):
                url = f"http://{reached}:{port}/v1/models"
                assert asyncio.run(_status(url)) == status


async def _status(url):
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        return answer.status


def test_an_exception_is_logged_by_type_and_place_without_what_a_client_said():
    file = io.StringIO()
    handler = logging.StreamHandler(file)
    handler.addFilter(hide_message)
    logger = logging.getLogger("of_this_test")
    logger.addHandler(handler)
    logger.propagate = False
    loop = asyncio.new_event_loop()
    for secret in ("my name is Anna", b"Anna"):
        try:
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise ValueError(secret) from error
        except ValueError as error:
            logger.error("error: a stream failed", exc_info=error)
    monitor = FullLog()
    root = logging.getLogger("wenet_uio.addons.serve.server_loop")
    root.addHandler(handler)
    monitor.take(loop, {"message": "Exception in callback tell('Anna')", "exception": ValueError()})
    root.removeHandler(handler)
    loop.close()
    assert "Anna" not in file.getvalue()
    assert file.getvalue().count("ValueError\n") == 3
    assert file.getvalue().count("test_serve.py") == 2
