import asyncio
import json
import logging
import socket as sockets
import time
from contextlib import suppress

import aiohttp
import numpy as np

from tests.addons.serve.held_turns import held_turns
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.raw_clients import frame, raw_socket, reset, until
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.audio.read import AudioReader

PINGS = frame(9, b"x" * 100) * 20_000
ONE_SAMPLE = frame(2, b"\0\0") * 8_000


def left(server):
    """Clients and streams that the server still has."""
    return (
        len(server.server._sessions)
        + len(server.server._engine._streams)
        + len(server.server._engine._arrived)
    )


def begun(url):
    """A connection whose stream has started."""
    raw = raw_socket(url)
    raw.sendall(frame(1, json.dumps(START).encode()))
    return raw


def test_a_vanished_client_leaves_nothing_behind(server, speech):
    async def vanish():
        async with aiohttp.ClientSession() as client:
            for _ in range(10):
                socket = await client.ws_connect(server.socket_url)
                await socket.send_json(START)
                await socket.send_bytes(speech.astype("<i2").tobytes())
                socket._response.connection.transport.abort()

    asyncio.run(vanish())
    assert until(lambda: not left(server))


def test_a_client_that_reads_no_answers_to_its_pings_and_vanishes_leaves_nothing_behind(server):
    raw = begun(server.socket_url)
    raw.settimeout(1)
    with suppress(TimeoutError):  # the server waits for this client to read
        raw.sendall(PINGS)
    assert server.server._sessions
    reset(raw)
    assert until(lambda: not left(server))


def test_a_client_that_only_sends_pings_is_idle(recogniser):
    async def replies(url):
        async with aiohttp.ClientSession() as client, client.ws_connect(url) as socket:
            await socket.send_json(START)
            pinging = asyncio.create_task(ping(socket))
            received = [json.loads(reply.data) async for reply in socket]
            pinging.cancel()
            return received

    async def ping(socket):
        while not socket.closed:
            await socket.ping()
            await asyncio.sleep(0.1)

    with served(recogniser, ServeOptions(limits=Limits(idle_seconds=0.5))) as running:
        assert asyncio.run(replies(running.socket_url))[-1]["message"] == "no message for 0.5 s"


def test_many_small_packets_of_one_client_change_no_text_of_another(server, speech):
    expected = sentences(asyncio.run(speak(server.socket_url, speech)))
    raw = begun(server.socket_url)
    raw.setblocking(False)
    raw.send(ONE_SAMPLE)
    assert sentences(asyncio.run(speak(server.socket_url, speech, packet=1600))) == expected
    reset(raw)
    assert until(lambda: not left(server))


def test_a_client_that_vanishes_in_the_handshake_is_no_error_in_the_log(server, caplog):
    caplog.set_level(logging.ERROR)
    host, _, port = server.socket_url.removeprefix("ws://").partition(":")
    request = (
        f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    )
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    for _ in range(50):
        raw = sockets.create_connection((host, int(port)))
        raw.sendall((request + key).encode())
        reset(raw)
    assert until(lambda: not left(server))
    assert sentences(asyncio.run(speak(server.socket_url, []))) == [""]
    assert not caplog.records


def upload(server, content):
    """A connection that has sent a whole recording."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + content
        + b"\r\n--x--\r\n"
    )
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    raw = sockets.create_connection((host, int(port)))
    raw.sendall(head.encode() + body)
    return raw


def test_vanished_clients_are_noticed_while_their_silence_is_searched_for_speech(
    recogniser, monkeypatch
):
    """Eight times half an hour of silence in 60 blocks; each would take 0.1 s."""
    blocks = []
    read = AudioReader.read

    def slowly(*arguments, **options):
        blocks.append(arguments)
        time.sleep(0.1)
        return read(*arguments, **options)

    monkeypatch.setattr(AudioReader, "read", slowly)
    silence = encoded(np.zeros(1800 * 8000, np.int16), "FLAC", 8000)
    with served(recogniser, ServeOptions()) as running:
        vanishing = [upload(running, silence) for _ in range(8)]
        transcriptions = running.server._transcriptions
        assert until(lambda: transcriptions.busy == 8 and blocks)
        for raw in vanishing:
            reset(raw)
        assert until(lambda: not transcriptions.busy)
    # All together have 480 blocks.
    assert len(blocks) < 240


def test_a_client_that_has_vanished_leaves_its_place_while_its_recording_waits(recogniser, speech):
    content = encoded(speech)
    with served(recogniser, ServeOptions()) as running:
        transcriptions = running.server._transcriptions
        with held_turns(transcriptions._turns):
            first = upload(running, content)
            gone = [upload(running, content) for _ in range(3)]
            assert until(lambda: len(transcriptions._turns._waiting) == 4)
            for raw in gone:
                reset(raw)
            assert until(lambda: transcriptions.busy == 1)
        first.settimeout(20)
        assert b"200 OK" in first.recv(100)
        first.close()
