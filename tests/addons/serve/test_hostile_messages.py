"""Hostile messages at both doors of the WebSockets: WeNet's protocol and OpenAI's realtime API."""

import asyncio
import json
import logging
import random

import aiohttp
import pytest

from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.raw_clients import frame, raw_socket, reset, until
from tests.support.serve.realtime_clients import (
    DONE,
    answers,
    async_client,
    base64_of,
    events_until,
    session_of,
    transcribe,
    transcripts,
)
from wenet_uio.addons.serve.messages import RefusedError
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.server_loop import keep_texts_out_of_log
from wenet_uio.addons.serve.session import MOST_REPLIES

APPEND, COMMIT = "input_audio_buffer.append", "input_audio_buffer.commit"
UPDATE = "session.update"
JUNK = [
    None,
    True,
    -1,
    1e308,
    "",
    "x",
    "\ud800",
    "\u0000",
    "Ω" * 1000,
    [],
    {},
    [[]],
    {"type": []},
    {"": None},
    ["x"] * 2000,
]
ANY_DOOR = [
    "",
    "hello",
    "null",
    "3",
    "[]",
    '"start"',
    "{}",
    '{"type": ',
    "[" * 100_000,
    '{"a":' * 50_000,
    '{"signal": "stop", "type": "stop"}',
    '{"signal": ["start"], "type": ["session.update"]}',
    '{"signal": {}, "type": {}}',
    '{"signal": 1e999, "type": NaN}',
    f'{{"signal": {"9" * 5000}, "type": {"9" * 5000}}}',
    '{"signal": "\\ud800", "type": "\\ud800"}',
    '{"signal": "start", "type": "response.create"}',
    "x" * (1 << 19),
    "\0",
]
"""Texts that each door refuses; at WeNet's door after a start."""


def event(kind, **fields):
    return json.dumps({"type": kind, **fields})


def update(**audio_input):
    return event(UPDATE, session={"type": "transcription", "audio": {"input": audio_input}})


REALTIME = [
    *(event(APPEND, audio=audio) for audio in ("!", "a", "AA=A", "-_-_", "AAAA\n", "Ω", "\ud800")),
    *(event(APPEND, audio=audio) for audio in (None, 3, [], {}, ["AAAA"])),
    event(APPEND),
    f'{{"type": "{APPEND}", "audio": "\\"}}',
    f'{{"type": "{APPEND}", "audio": "AAAA", "audio": "AAAA"',
    f'{{"type": "{APPEND}", "audio": "AAAA", "more": [{"[]," * 200_000}[]]}}',
    event(COMMIT),
    event("response.create"),
    event("conversation.item.create", item={"content": [{"type": "input_audio", "audio": "AAAA"}]}),
    event("session.updated"),
    event(UPDATE),
    event(UPDATE, session=3),
    event(UPDATE, session={"type": "realtime"}),
    event(UPDATE, session={"audio": 3}),
    event(UPDATE, session={"audio": {"input": []}}),
    event(UPDATE, session={"input_audio_format": "mp3"}),
    *(update(format=value) for value in (3, [], {"type": []}, {"type": "audio/mp3"}, None)),
    *(update(format={"type": "audio/pcm", "rate": value}) for value in (0, -1, 1.5, "x", 10**30)),
    *(update(turn_detection=value) for value in (3, [], {"type": "semantic_vad"}, {"type": []})),
    *(
        update(turn_detection={"type": "server_vad", "silence_duration_ms": value})
        for value in (0, -5, 1.5, True, "x", 10**9)
    ),
    *(update(transcription=value) for value in (3, [], {"prompt": 3}, {"language": []})),
    *(update(transcription={"keywords": value}) for value in (3, [3], ["x" * 101], ["x"] * 1001)),
    update(transcription={"keywords": ["Überraschung"]}),  # no unit spells it
    b"",
    b"\0\0",
]


@pytest.fixture
def expected(server, speech):
    """The text of a second and a half, which is the same at both doors."""
    (text,) = sentences(
        asyncio.run(speak(server.socket_url, speech[:24000], START | {"sample_rate": 24000}))
    )
    assert text
    return text


def has_the_texts(server, speech, expected):
    """Check that both doors work, and that nobody holds a place."""
    (text,) = sentences(
        asyncio.run(speak(server.socket_url, speech[:24000], START | {"sample_rate": 24000}))
    )
    assert text == expected
    assert transcripts(asyncio.run(transcribe(server.url, speech[:24000]))) == [expected]
    return until(lambda: not server.server._clients and not server.server._sessions)


def test_a_text_that_is_no_message_is_refused_at_both_doors(server, speech, expected, caplog):
    async def refusal(message):
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(server.socket_url) as socket,
        ):
            await socket.send_json(START)
            await socket.send_str(message)
            return [json.loads(reply.data) async for reply in socket][-1], socket.close_code

    with caplog.at_level(logging.ERROR):
        for message in ANY_DOOR:
            last, code = asyncio.run(refusal(message))
            assert (last["status"], code) == ("failed", aiohttp.WSCloseCode.POLICY_VIOLATION)
        refused = asyncio.run(answers(server.url, *ANY_DOOR))
        assert [event["type"] for event in refused[1:]] == ["error"] * len(ANY_DOOR)
        assert has_the_texts(server, speech, expected)
    assert not caplog.records


def test_a_realtime_session_refuses_each_hostile_event_and_goes_on(
    server, speech, expected, caplog
):
    good = (
        event(UPDATE, session=session_of(None)),
        event(APPEND, audio=base64_of(speech[:24000])),
        event(COMMIT),
    )
    with caplog.at_level(logging.ERROR):
        events = asyncio.run(answers(server.url, *REALTIME, *good))
        errors = [event for event in events if event["type"] == "error"]
        assert len(errors) == len(REALTIME)
        assert {event["error"]["type"] for event in errors} == {"invalid_request_error"}
        assert transcripts(events) == [expected]
        assert has_the_texts(server, speech, expected)
    assert not caplog.records


def test_hostile_events_within_a_turn_change_nothing_of_its_text(server, speech, expected):
    first, second = (
        event(APPEND, audio=base64_of(part)) for part in (speech[:9001], speech[9001:24000])
    )
    hostile = [message for message in REALTIME if message != event(COMMIT)]
    sent = (event(UPDATE, session=session_of(None)), first, *hostile, second, event(COMMIT))
    events = asyncio.run(answers(server.url, *sent))
    assert transcripts(events) == [expected]
    assert sum(event["type"] == "error" for event in events) == len(hostile)


def test_an_error_names_the_event_and_what_was_expected(server):
    sent = (event(APPEND, audio="!", event_id="mine"), event(COMMIT), event("response.create"))
    _, base64, empty, unknown = asyncio.run(answers(server.url, *sent))
    assert base64["error"] == {
        "message": "audio: expected base64",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
        "event_id": "mine",
    }
    assert empty["error"]["code"] == "input_audio_buffer_commit_empty"
    assert "only transcribes; expected session.update" in unknown["error"]["message"]


@pytest.mark.parametrize("seed", range(3))
def test_messages_with_any_value_in_any_place_end_no_session_by_a_fault_of_the_server(
    server, speech, expected, caplog, seed
):
    """The seeds are those of the parameter."""
    draw = random.Random(seed)
    patterns = [
        {"type": UPDATE, "session": session_of({"type": "server_vad"}, prompt="a", keywords=["b"])},
        {"type": "transcription_session.update", "session": {"input_audio_format": "pcm16"}},
        {"type": APPEND, "audio": "AAAA", "event_id": "mine"},
        {"type": COMMIT},
        {"type": "input_audio_buffer.clear"},
    ]
    messages = [spoiled(draw.choice(patterns), draw) for _ in range(150)]
    starts = [spoiled(START | {"hot_words": ["a"], "token": "x"}, draw) for _ in range(40)]

    async def all_starts():
        async with aiohttp.ClientSession() as client:
            for start in starts:
                async with client.ws_connect(server.socket_url) as socket:
                    await socket.send_str(json.dumps(start))
                    await socket.send_json({"signal": "end"})
                    last = [json.loads(reply.data) async for reply in socket][-1]
                    assert "the server failed" not in last.get("message", "")

    with caplog.at_level(logging.ERROR):
        events = asyncio.run(answers(server.url, *messages))
        faults = [event for event in events if event.get("error", {}).get("type") == "server_error"]
        assert not faults
        asyncio.run(all_starts())
        assert has_the_texts(server, speech, expected)
    assert not caplog.records


def spoiled(pattern, draw):
    """A copy of a message with junk in the place of one of its values."""
    copy = json.loads(json.dumps(pattern))
    place = copy
    while True:
        name = draw.choice(list(place))
        if not isinstance(place[name], dict) or not place[name] or draw.random() < 0.2:
            place[name] = draw.choice(JUNK)
            return copy
        place = place[name]


@pytest.fixture(scope="module")
def strict(recogniser):
    limits = Limits(max_clients=2, max_message_bytes=4096, max_seconds=3)
    options = ServeOptions(endpoints={}, limits=limits, token="secret")
    with served(recogniser, options) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(recogniser):
    """A server that soon gives up a client that sends nothing or reads nothing."""
    limits = Limits(idle_seconds=0.5, send_seconds=0.5)
    options = ServeOptions(endpoints={}, limits=limits, token="secret")
    with served(recogniser, options, send_buffer=4096) as running:
        yield running


async def close_of(url, *messages, protocols=(), headers=None):
    """The last event and the close code of a session that the server ends."""
    headers = {"Authorization": "Bearer secret"} if headers is None else headers
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(
            f"{url}/v1/realtime".replace("http", "ws", 1), headers=headers, protocols=protocols
        ) as socket,
    ):
        for message in messages:
            await socket.send_str(message)
        events = [json.loads(reply.data) async for reply in socket]
        return events[-1]["error"], socket.close_code


def test_the_limits_of_a_stream_hold_for_a_realtime_session(strict, hasty, speech):
    parts = [event(APPEND, audio=base64_of(speech[:1200])) for _ in range(80)]
    error, code = asyncio.run(close_of(strict.url, *parts))
    assert (error["code"], code) == ("max_seconds", aiohttp.WSCloseCode.POLICY_VIOLATION)
    assert error["message"] == "a stream may have 3 s of audio; connect again"
    for size in (4097, 30_000_000):
        assert until(lambda: not strict.server._clients)  # the one before has left its place
        error, code = asyncio.run(close_of(strict.url, "x" * size))
        assert (error["code"], code) == ("max_message_bytes", aiohttp.WSCloseCode.MESSAGE_TOO_BIG)
    error, _ = asyncio.run(close_of(hasty.url))
    assert (error["code"], error["message"]) == ("idle_seconds", "no message for 0.5 s")
    assert until(lambda: not strict.server._clients)


def test_a_realtime_session_needs_the_token_the_origin_and_a_place(strict):
    async def status(**headers):
        async with aiohttp.ClientSession() as client:
            try:
                async with client.ws_connect(strict.socket_url + "/v1/realtime", headers=headers):
                    return 101
            except aiohttp.WSServerHandshakeError as error:
                return error.status

    async def all_places():
        bearer = {"Authorization": "Bearer secret"}
        async with aiohttp.ClientSession() as client:
            url = strict.socket_url + "/v1/realtime"
            places = [await client.ws_connect(url, headers=bearer) for _ in range(2)]
            third = await status(**bearer)
            wenet = await client.ws_connect(strict.socket_url)
            await wenet.send_json(START | {"token": "secret"})
            refused = (await wenet.receive()).json()
            for socket in (*places, wenet):
                await socket.close()
        return third, refused

    assert asyncio.run(status()) == 401
    assert asyncio.run(status(Authorization="Bearer wrong")) == 401
    foreign = {"Authorization": "Bearer secret", "Origin": "https://evil.example"}
    assert asyncio.run(status(**foreign)) == 401
    third, refused = asyncio.run(all_places())
    assert third == 503
    assert refused["message"] == "2 clients are connected; try again later"
    assert until(lambda: not strict.server._clients)


def test_refused_events_and_empty_audio_keep_no_place(hasty):
    async def stay():
        url, bearer = hasty.socket_url + "/v1/realtime", {"Authorization": "Bearer secret"}
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(url, headers=bearer) as door,
        ):

            async def bother():
                while not door.closed:
                    for message in (event(APPEND, audio=""), event(APPEND, audio="!"), "x"):
                        await door.send_str(message)
                    await asyncio.sleep(0.05)

            bothering = asyncio.create_task(bother())
            events = [json.loads(reply.data) async for reply in door]
            bothering.cancel()
            await asyncio.gather(bothering, return_exceptions=True)
            return events[-1]["error"]["code"]

    assert asyncio.run(stay()) == "idle_seconds"


def test_a_browser_gives_the_token_as_a_subprotocol_and_it_is_not_logged(
    hasty, caplog, monkeypatch
):
    names = ("realtime", "openai-insecure-api-key.secret")
    error, _ = asyncio.run(close_of(hasty.url, protocols=names, headers={}))
    assert error["code"] == "idle_seconds"
    with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
        asyncio.run(close_of(hasty.url, protocols=(names[0], names[1] + "x"), headers={}))
    monkeypatch.setattr(logging.getLogger("aiohttp.websocket"), "level", logging.NOTSET)
    with monkeypatch.context() as patch:  # filters of handlers would stay
        patch.setattr(logging.getLogger(), "handlers", [])
        keep_texts_out_of_log()
    asyncio.run(other_protocol(hasty.socket_url, names[1]))
    assert "secret" not in caplog.text


async def other_protocol(url, name):
    """Ask WeNet's door for a subprotocol, which it does not have."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url, protocols=(name,)):
        pass


def test_a_session_whose_keywords_a_new_model_cannot_spell_goes_on(recogniser, speech):
    """A reload may take another model between two turns."""
    with served(recogniser, ServeOptions(endpoints={})) as running:

        async def talk():
            async with async_client(running.url).realtime.connect(model="any") as connection:
                await connection.session.update(session=session_of(None, keywords=["a"]))
                await connection.input_audio_buffer.append(audio=base64_of(speech[:2400]))
                await connection.input_audio_buffer.commit()
                await events_until(connection, DONE)
                (session,) = running.server._sessions
                session._open_stream = refuse
                await connection.input_audio_buffer.append(audio=base64_of(speech[:2400]))
                await connection.input_audio_buffer.commit()
                return await events_until(connection, "error", 2)

        def refuse(start):
            raise RefusedError("hot_words: the units can spell no phrase: a")

        errors = [event["error"]["message"] for event in asyncio.run(talk())]
    assert errors == [
        "hot_words: the units can spell no phrase: a",
        "input_audio_buffer.commit: the buffer has no audio",
    ]


def test_a_client_that_reads_no_errors_is_disconnected_and_they_take_no_memory(hasty):
    assert until(lambda: not hasty.server._sessions)
    socket = raw_socket(hasty.socket_url, 2048, "/v1/realtime", "secret")
    socket.settimeout(30)
    (session,) = hasty.server._sessions
    with pytest.raises(ConnectionError):
        for _ in range(10_000_000):
            socket.sendall(frame(1, b"{}") * 100)
    socket.close()
    assert until(lambda: not hasty.server._sessions)
    assert len(session._unsent) <= MOST_REPLIES + 1
    refused = vars(hasty.server)["_metrics"].refused.labels("send_seconds")
    assert refused._value.get() == 1


@pytest.mark.parametrize("ends", [[], [event(COMMIT)], [update(turn_detection=None)]])
def test_a_client_that_vanishes_within_a_turn_leaves_nothing(server, speech, ends):
    for _ in range(5):
        raw = raw_socket(server.socket_url, path="/v1/realtime")
        for message in (event(APPEND, audio=base64_of(speech[:12000])), *ends):
            raw.sendall(frame(1, message.encode()))
        reset(raw)
    engine = server.server._engine
    assert until(lambda: not server.server._sessions and not engine._streams)
    assert not server.server._clients
