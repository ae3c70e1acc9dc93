import asyncio
import json
import time
from contextlib import suppress
from types import SimpleNamespace

import aiohttp
import numpy as np
import pytest
import torch

from tests.support.serve.clients import START, of_type, sentences, served, speak
from tests.support.serve.raw_clients import frame, raw_socket, reset, until
from wenet_uio.addons.listen.endpoint import EndpointRule
from wenet_uio.addons.serve.engine import Engine
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.session import Session
from wenet_uio.addons.serve.wenet_dialect import WenetDialect
from wenet_uio.dataset.chain.waveform import resample


def streamed(recogniser, samples, **options):
    """The text of the stream of the Python interface."""
    stream = recogniser.stream(mode="attention_rescoring", **options)
    stream.accept(samples)
    return stream.finish().text


async def replies(url, *messages):
    """Send messages (dict, str or bytes); return all replies."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url) as socket:
        for message in messages:
            if isinstance(message, bytes):
                await socket.send_bytes(message)
            else:
                await socket.send_str(message if isinstance(message, str) else json.dumps(message))
        return [json.loads(reply.data) async for reply in socket]


def test_a_stream_has_the_messages_of_the_protocol_and_the_text_of_the_python_interface(
    server, recogniser, speech
):
    received = asyncio.run(speak(server.socket_url, speech))
    kinds = [message["type"] for message in received]
    assert kinds[0] == "server_ready"
    assert kinds[-2:] == ["final_result", "speech_end"]
    assert set(kinds[1:-2]) == {"partial_result"}
    assert all(message["status"] == "ok" for message in received)
    assert sentences(received) == [streamed(recogniser, speech)] != [""]
    final = json.loads(received[-2]["nbest"])[0]
    assert [piece["word"] for piece in final["word_pieces"]] == final["sentence"].split()
    for piece, word in zip(final["word_pieces"], received[-2]["segment"]["words"], strict=True):
        assert (piece["start"], piece["end"]) == (
            round(1000 * word["start"]),
            round(1000 * word["end"]),
        )
    assert received[-2]["segment"]["cues"][0].keys() == {"start", "end", "text"}


def test_the_size_of_packets_changes_nothing(server, speech):
    short = speech[:32000]
    texts = {
        sentences(asyncio.run(speak(server.socket_url, short, packet=packet)))[0]
        for packet in (7, 801, 96000)
    }
    assert len(texts) == 1
    assert texts != {""}


def test_n_best_texts_are_different_and_the_first_is_the_best(server, speech):
    received = asyncio.run(speak(server.socket_url, speech, {"signal": "start", "nbest": 3}))
    final = json.loads(of_type(received, "final_result")[-1]["nbest"])
    assert len({hypothesis["sentence"] for hypothesis in final}) == 3
    assert final[0]["sentence"] == sentences(asyncio.run(speak(server.socket_url, speech)))[0]
    assert [set(hypothesis) for hypothesis in final] == [
        {"sentence", "word_pieces"},
        {"sentence"},
        {"sentence"},
    ]


def test_another_sample_rate_is_resampled(server, recogniser, speech):
    low = resample(torch.from_numpy(speech).float(), 16000, 8000).round().to(torch.int16).numpy()
    received = asyncio.run(speak(server.socket_url, low, START | {"sample_rate": 8000}))
    assert received[0]["sample_rate"] == 8000
    assert sentences(received) == [streamed(recogniser, low, sample_rate=8000)]


def test_hot_words_of_a_client_change_its_texts_alone(server, recogniser, speech):
    words = {"hot_words": ["hag", "g h"], "hot_word_score": 20}

    async def both():
        return await asyncio.gather(
            speak(server.socket_url, speech, START | words), speak(server.socket_url, speech, START)
        )

    hot, plain = (sentences(received) for received in asyncio.run(both()))
    assert hot == [streamed(recogniser, speech, hot_words=words["hot_words"], hot_word_score=20)]
    assert plain == [streamed(recogniser, speech)] != hot


def test_clients_at_once_get_the_texts_that_each_gets_alone(server, speech):
    others = [
        speech,
        speech[::-1].copy(),
        speech[: len(speech) // 3],
        (speech * 0.3).astype(np.int16),
    ] * 2
    alone = [sentences(asyncio.run(speak(server.socket_url, samples))) for samples in others[:4]]

    async def together():
        return await asyncio.gather(
            *[speak(server.socket_url, samples, packet=1600) for samples in others]
        )

    assert [sentences(received) for received in asyncio.run(together())] == alone * 2


@pytest.mark.parametrize("samples", [0, 1, 100, 400])
def test_an_empty_or_very_short_stream_ends_with_an_empty_text(server, samples):
    received = asyncio.run(speak(server.socket_url, np.zeros(samples, np.int16)))
    assert [message["type"] for message in received] == [
        "server_ready",
        "final_result",
        "speech_end",
    ]
    assert sentences(received) == [""]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (["hello"], "must be JSON"),
        (["[" * 100_000], "must be JSON"),
        ([["start"]], '"signal": "start"'),
        ([{"signal": "stop"}], '"signal": "start"'),
        ([b"\0\0"], "start comes before audio"),
        ([{"signal": "end"}], "start comes before the signal end"),
        ([START, START], "second signal start"),
        ([START, "x" * (1 << 19)], "a text message may have 262144 characters, found 524288"),
        ([START | {"nbest": 0}], "nbest: expected a whole number from 1"),
        ([START | {"nbest": 1.5}], "nbest: expected a whole number"),
        ([START | {"nbest": "many"}], "nbest: expected a number"),
        ([START | {"sample_rate": 10}], "sample_rate: expected a whole number from 4000"),
        (['{"signal": "start", "sample_rate": 1e999}'], "sample_rate: expected a number"),
        ([START | {"continuous_decoding": "yes"}], "continuous_decoding: expected true or false"),
        ([START | {"hot_words": 3}], "hot_words: expected a list"),
        ([START | {"hot_words": ["x"] * 1001}], "at most 1000 phrases"),
        ([START | {"hot_words": ["xyz"]}], "the units can spell no phrase"),
        (
            [START | {"hot_words": ["a"], "hot_word_score": "high"}],
            "hot_word_score: expected a number",
        ),
    ],
)
def test_a_wrong_message_is_answered_with_the_reason(server, sent, message):
    *_, last = asyncio.run(replies(server.socket_url, *sent))
    assert last["status"] == "failed"
    assert message in last["message"]


def test_unknown_fields_and_a_float_of_whole_value_are_taken(server, speech):
    start = {
        "signal": "start",
        "nbest": 1.0,
        "continuous_decoding": True,
        "reserved": {"of": "others"},
        "hot_words": None,
    }
    assert sentences(asyncio.run(speak(server.socket_url, speech, start)))


@pytest.fixture(scope="module")
def strict(recogniser):
    limits = Limits(
        max_clients=2, max_message_bytes=4096, max_seconds=3, idle_seconds=0.5, queue_seconds=1
    )
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as running:
        yield running


def test_too_much_audio_is_refused_and_the_reason_is_sent(strict, speech):
    received = asyncio.run(speak(strict.socket_url, speech, packet=1600))
    assert received[-1] == {
        "status": "failed",
        "message": "a stream may have 3 s of audio; connect again",
        "code": "max_seconds",
    }


def test_an_idle_client_is_disconnected_but_not_one_that_waits_for_its_results(
    strict, speech, monkeypatch
):
    # Answers to pings are no messages
    monkeypatch.setattr("wenet_uio.addons.serve.session.HEARTBEAT", 0.1)
    (refusal,) = asyncio.run(replies(strict.socket_url))
    assert refusal == {
        "status": "failed",
        "message": "no message for 0.5 s",
        "code": "idle_seconds",
    }
    assert asyncio.run(replies(strict.socket_url, START))[-1] == refusal
    assert sentences(asyncio.run(speak(strict.socket_url, speech[:16000], packet=1600)))


TOO_LARGE = {
    "status": "failed",
    "message": "a message may have 4096 bytes; send the audio in parts",
    "code": "max_message_bytes",
}


async def answers_to_bytes(url, *sent):
    """All messages of the server after `start` and binary messages, and the close code."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url) as socket:
        await socket.send_json(START)
        for content in sent:
            await socket.send_bytes(content)
        return [json.loads(reply.data) async for reply in socket], socket.close_code


@pytest.mark.parametrize("size", [4097, 5000, 30_000_000])
def test_a_message_that_is_too_large_gets_a_reason_and_the_code_1009(recogniser, size):
    # A busy machine sends 30 MB longer than the strict server waits for a client.
    with served(recogniser, ServeOptions(limits=Limits(max_message_bytes=4096))) as server:
        received, code = asyncio.run(answers_to_bytes(server.socket_url, bytes(size)))
    assert received[-1] == TOO_LARGE
    assert code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


def test_a_client_that_is_refused_gets_the_reason_whatever_it_sends(strict):
    async def refused(url):
        async with aiohttp.ClientSession() as client:
            others = [await client.ws_connect(url) for _ in range(2)]
            for other in others:
                await other.send_json(START)
                await other.receive()
            answers = [
                await answers_to_bytes(url, *[bytes(size)] * count)
                for size, count in ((30_000_000, 1), (4000, 5000))
            ]
            for other in others:
                await other.close()
            return answers

    assert until(lambda: not strict.server._clients)
    reason = {
        "status": "failed",
        "message": "2 clients are connected; try again later",
        "code": "max_clients",
    }
    for received, code in asyncio.run(refused(strict.socket_url)):
        assert received == [reason]
        assert code == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert until(lambda: not strict.server._clients)


def test_a_message_of_the_largest_size_is_taken(strict):
    sent = START, bytes(4096), {"signal": "end"}
    assert asyncio.run(replies(strict.socket_url, *sent))[-1]["type"] == "speech_end"


def test_a_client_that_does_not_stop_a_message_that_is_too_large_is_disconnected(
    strict, monkeypatch
):
    monkeypatch.setattr("wenet_uio.addons.serve.session.CLOSING", 0.5)
    raw = raw_socket(strict.socket_url)
    raw.sendall(frame(1, json.dumps(START).encode()) + b"\x82\xff" + (1 << 40).to_bytes(8, "big"))
    raw.settimeout(20)
    with pytest.raises(ConnectionError):
        while True:
            raw.sendall(bytes(1 << 16))
    raw.close()
    assert until(lambda: not strict.server._sessions)


def test_42_seconds_in_one_message_have_the_text_of_packets(server, speech):
    long = np.tile(speech, 7)
    assert len(long) * 2 > 1 << 20
    start = {"signal": "start", "nbest": 1, "continuous_decoding": False}
    whole = asyncio.run(speak(server.socket_url, long, start, packet=len(long)))
    parts = asyncio.run(speak(server.socket_url, long, start, packet=6400))
    assert sentences(whole) == sentences(parts)
    assert sentences(whole)[0]


@pytest.mark.parametrize("size", [1, 3, 333, 16001])
def test_half_a_sample_is_joined_with_the_next_packet(server, speech, size):
    short = speech[:6000]
    content = short.astype("<i2").tobytes()
    packets = [content[place : place + size] for place in range(0, len(content), size)]
    received = asyncio.run(replies(server.socket_url, START, *packets, {"signal": "end"}))
    assert sentences(received) == sentences(asyncio.run(speak(server.socket_url, short)))
    assert received[-1] == {"status": "ok", "type": "speech_end"}


def test_half_a_sample_at_the_end_is_named(server, speech):
    content = speech[:16000].astype("<i2").tobytes()
    received = asyncio.run(replies(server.socket_url, START, content + b"x", {"signal": "end"}))
    assert sentences(received) == sentences(asyncio.run(speak(server.socket_url, speech[:16000])))
    assert received[-1] == {
        "status": "ok",
        "type": "speech_end",
        "warnings": ["audio: an odd number of bytes; the last byte is left out"],
    }


def test_one_client_too_many_is_refused_and_served_later(strict, speech):
    async def three():
        async with aiohttp.ClientSession() as client:
            first, second = [await client.ws_connect(strict.socket_url) for _ in range(2)]
            for socket in (first, second):
                await socket.send_json(START)
                assert json.loads((await socket.receive()).data)["type"] == "server_ready"
            refused = await replies(strict.socket_url, START)
            await first.close()
            await second.close()
        return refused

    message = "2 clients are connected; try again later"
    assert asyncio.run(three()) == [{"status": "failed", "message": message, "code": "max_clients"}]
    assert until(lambda: not strict.server._clients)
    assert sentences(asyncio.run(speak(strict.socket_url, speech[:16000], packet=1600)))


@pytest.mark.parametrize("first", [None, START | {"token": "wrong"}, {"signal": "end"}])
def test_strangers_without_the_token_take_no_place_of_a_client(recogniser, speech, first):
    limits = Limits(max_clients=1)
    options = ServeOptions(endpoints={}, token="secret", limits=limits)

    async def crowd(url):
        async with aiohttp.ClientSession() as client:
            strangers = [await client.ws_connect(url) for _ in range(64)]
            for stranger in strangers:
                if first is not None:
                    await stranger.send_json(first)
            received = await speak(url, speech[:32000], START | {"token": "secret"})
            for stranger in strangers:
                await stranger.close()
        return received

    with served(recogniser, options) as running:
        assert sentences(asyncio.run(crowd(running.socket_url)))[0]


def test_a_socket_that_does_not_start_is_closed_after_the_seconds_for_a_head(recogniser):
    limits = Limits(head_seconds=0.3, idle_seconds=30)
    with served(recogniser, ServeOptions(limits=limits)) as running:
        assert asyncio.run(replies(running.socket_url)) == [
            {"status": "failed", "message": "no message for 0.3 s", "code": "idle_seconds"}
        ]


@pytest.mark.third
@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 100,  # reserved bits
        b"\x82\x7f" + b"\xff" * 8,  # 2^64 - 1 bytes
        b"\x82\x05hello",  # without a mask
        b"\x81\x84\0\0\0\0\xff\xfe\xfd\xfc",  # text that is not utf-8
        frame(1, b'{"signal": "start"}') + b"\x02\xfe\x10\x00",  # begins a message and vanishes
        frame(8, b"\x03"),  # a close frame of one byte
        b"\0" * 1000,
        b"",
    ],
)
def test_malformed_frames_and_vanished_clients_harm_no_other(server, speech, sent):
    speech = speech[:48000]
    expected = sentences(asyncio.run(speak(server.socket_url, speech)))

    async def meanwhile():
        stream = asyncio.create_task(speak(server.socket_url, speech, packet=1600, pause=0.01))
        for _ in range(20):
            raw = await asyncio.to_thread(raw_socket, server.socket_url)
            raw.sendall(sent)
            reset(raw)
        return await stream

    assert sentences(asyncio.run(meanwhile())) == expected


def test_a_client_that_reads_nothing_is_disconnected_and_delays_nobody(recogniser, speech):
    rules = {"often": EndpointRule(needs_words=False, silence=0.0, length=0.3)}
    options = ServeOptions({"beam_size": 100}, endpoints=rules, limits=Limits(send_seconds=0.5))
    with served(recogniser, options, send_buffer=4096) as running:
        raw = raw_socket(running.socket_url, receive_buffer=2048)
        raw.sendall(frame(1, json.dumps(START | {"nbest": 100}).encode()))
        for _ in range(8):
            raw.sendall(frame(2, speech[:30000].astype("<i2").tobytes()))
        assert sentences(asyncio.run(speak(running.socket_url, speech)))
        assert until(lambda: not running.server._sessions)
        raw.close()
        refused = vars(running.server)["_metrics"].refused.labels("send_seconds")
        assert refused._value.get() == 1


def test_more_audio_than_may_wait_slows_the_client_down_and_loses_nothing(recogniser, speech):
    limits = Limits(queue_seconds=0.1)
    expected = sentences(asyncio.run(_speak_to(recogniser, Limits(), np.tile(speech, 3))))
    assert sentences(asyncio.run(_speak_to(recogniser, limits, np.tile(speech, 3)))) == expected


async def _speak_to(recogniser, limits, samples):
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as running:
        return await speak(running.socket_url, samples)


def test_utterances_end_at_pauses_and_a_stream_goes_on_if_it_is_continuous(recogniser, speech):
    rules = {"rule3": EndpointRule(needs_words=False, silence=0.0, length=2.0)}
    with served(recogniser, ServeOptions(endpoints=rules)) as running:
        several = asyncio.run(speak(running.socket_url, speech))
        one = asyncio.run(speak(running.socket_url, speech, {"signal": "start"}, packet=96000))
        end = START | {"continuous_decoding": False}
        early = asyncio.run(speak(running.socket_url, speech, end, pause=0.01))
    finals = of_type(several, "final_result")
    assert len(finals) > 1
    assert all(sentences(several)[:2])
    starts = [final["segment"]["start"] for final in finals]
    assert starts == sorted(set(starts))
    for received in (one, early):
        assert sentences(received) == sentences(several)[:1]
        assert [message["type"] for message in received[-2:]] == ["final_result", "speech_end"]


@pytest.mark.parametrize("turns", range(6))
def test_a_message_that_comes_as_the_stream_ends_does_not_keep_the_session_open(turns):
    async def ends():
        session = Session(None, WenetDialect({}), None, None, 16000, None)
        session._has_place = True
        session._seat = "a stream"
        message = asyncio.get_running_loop().create_future()
        silence = asyncio.get_running_loop().create_future()
        waits = iter([message, silence])
        socket = SimpleNamespace(receive=lambda: _wait(next(waits)))
        receiving = asyncio.create_task(session._receive_messages(socket))
        await asyncio.sleep(0.01)
        message.set_result(SimpleNamespace(type=aiohttp.WSMsgType.BINARY, data=b""))
        for _ in range(turns):
            await asyncio.sleep(0)
        session._finish_session()
        receiving.cancel()
        return await asyncio.wait((receiving,), timeout=5)

    _, pending = asyncio.run(ends())
    assert not pending


async def _wait(future):
    return await future


class BusyEngine(Engine):
    """Opens a stream late, as an engine does that has many others."""

    def open(self, stream, deliver):
        def later(news):
            self._loop.call_later(0.8 if news.opened else 0.0, deliver, news)

        return super().open(stream, later)


def test_a_client_that_waits_for_server_ready_is_not_idle(recogniser, speech, monkeypatch):
    monkeypatch.setattr("wenet_uio.addons.serve.app.Engine", BusyEngine)
    limits = Limits(idle_seconds=0.3)
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as running:

        async def patient_clients():
            async with aiohttp.ClientSession() as client:
                return await asyncio.gather(*(one(client) for _ in range(8)))

        async def one(client):
            async with client.ws_connect(running.socket_url) as socket:
                await socket.send_json(START)
                ready = await socket.receive_json()
                await asyncio.sleep(0.1)  # less than idle_seconds after the server is ready
                await socket.send_bytes(speech[:16000].tobytes())
                await socket.send_json({"signal": "end"})
                return [ready, *[json.loads(reply.data) async for reply in socket]]

        for received in asyncio.run(patient_clients()):
            assert received[0]["type"] == "server_ready"
            assert received[-1]["type"] == "speech_end"
        # The clock runs from then on.
        received = asyncio.run(replies(running.socket_url, START))
        assert [received[0].get("type"), received[-1].get("message")] == [
            "server_ready",
            "no message for 0.3 s",
        ]


@pytest.mark.parametrize(
    ("opcode", "content"),
    [(2, b""), (2, b"\0"), (2, b"\0\0"), (0x9, b""), (0xA, b"")],
    ids=["empty", "half a sample", "a sample", "ping", "pong"],
)
def test_messages_without_audio_to_speak_of_keep_no_place(recogniser, opcode, content):
    limits = Limits(idle_seconds=0.6)
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as running:
        raw = raw_socket(running.socket_url)
        raw.sendall(frame(1, json.dumps(START).encode()))
        raw.settimeout(0.1)
        received, end = b"", time.monotonic() + 20
        while b"failed" not in received and time.monotonic() < end:
            raw.sendall(frame(opcode, content))
            with suppress(TimeoutError):
                received += raw.recv(1 << 16)
        raw.close()
        assert b"no message for 0.6 s" in received


def test_a_client_that_speaks_in_small_packets_or_now_and_then_is_not_idle(recogniser, speech):
    limits = Limits(idle_seconds=0.6)
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as running:
        speech = speech[16000:32000]
        expected = sentences(asyncio.run(speak(running.socket_url, speech)))
        for packet, pause in ((160, 0.01), (8000, 0.4)):
            received = asyncio.run(speak(running.socket_url, speech, packet=packet, pause=pause))
            assert received[-1]["type"] == "speech_end", received[-1]
            assert sentences(received) == expected


UNMASKED = {
    "text": b"\x81\x05hello",
    "audio": b"\x82\x04\0\0\0\0",
    "audio of 200 bytes": b"\x82\x7e\0\xc8" + bytes(200),
    "audio of 70000 bytes": b"\x82\x7f" + (70_000).to_bytes(8, "big") + bytes(70_000),
    "ping": b"\x89\0",
    "second frame of a message": b"\x02\x82\0\0\0\0ab\x80\x02ab",
}


@pytest.mark.parametrize("cut", [None, 1, 3])
@pytest.mark.parametrize("sent", UNMASKED.values(), ids=UNMASKED)
def test_a_frame_without_a_mask_ends_its_connection_and_no_other(server, sent, cut):
    masked = frame(1, json.dumps(START).encode()) + frame(2, bytes(3000)) + frame(9, b"")
    raw = raw_socket(server.socket_url)
    raw.sendall(masked)
    raw.settimeout(10)
    received = b""
    while b"server_ready" not in received:
        received += raw.recv(1 << 16)
    for piece in [sent] if cut is None else [sent[:cut], sent[cut:]]:
        with suppress(ConnectionError):  # it is closed already
            raw.sendall(piece)
        time.sleep(0.05)
    with suppress(ConnectionError):
        while piece := raw.recv(1 << 16):
            received += piece
    raw.close()
    assert b"\x88\x02\x03\xea" in received  # closed with 1002


@pytest.mark.parametrize("opcode", [2, 9, 0xA], ids=["empty", "ping", "pong"])
def test_a_flood_of_messages_without_audio_keeps_no_place(recogniser, opcode):
    limits = Limits(idle_seconds=0.6)
    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as running:
        raw = raw_socket(running.socket_url, receive_buffer=1 << 20)
        raw.sendall(frame(1, json.dumps(START).encode()))
        raw.settimeout(0.02)
        received, end = b"", time.monotonic() + 20
        while b"failed" not in received and time.monotonic() < end:
            with suppress(OSError):  # the server reads no more, or later
                raw.sendall(frame(opcode, b"") * 200)
            with suppress(OSError):
                received = received[-1000:] + raw.recv(1 << 20)
        raw.close()
        assert b"no message for 0.6 s" in received


@pytest.mark.parametrize("opcode", [2, 9, 0xA], ids=["empty", "ping", "pong"])
def test_other_clients_have_their_turns_between_the_messages_of_a_flood(server, opcode):
    loop, turns = server.server._engine._loop, 0

    def turn():
        nonlocal turns
        turns += 1
        if turns > 0:
            loop.call_soon(turn)

    raw = raw_socket(server.socket_url)
    raw.settimeout(20)
    raw.sendall(frame(1, json.dumps(START).encode()))
    assert b"server_ready" in raw.recv(1 << 16)
    loop.call_soon_threadsafe(turn)
    raw.sendall(frame(opcode, b"") * 4000 + frame(1, b'{"signal": "end"}'))
    received = b""
    while b"speech_end" not in received:
        received = received[-100:] + raw.recv(1 << 16)
    found, turns = turns, -(1 << 30)
    raw.close()
    assert found > 400
