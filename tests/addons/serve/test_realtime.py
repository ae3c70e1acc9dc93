"""Sessions of OpenAI's realtime API, with OpenAI's package as the client."""

import asyncio
import base64
from pathlib import Path

import aiohttp
import pytest
import soundfile

from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.realtime_clients import (
    DELTA,
    DONE,
    answers,
    append,
    async_client,
    base64_of,
    events_until,
    kinds,
    session_of,
    transcribe,
    transcripts,
)
from wenet_uio.addons.listen.endpoint import EndpointRule
from wenet_uio.addons.serve.options import Limits, ServeOptions

APPEND = "input_audio_buffer.append"
COMMIT = {"type": "input_audio_buffer.commit"}
RULES = {
    "rule2": EndpointRule(needs_words=True, silence=1.0),
    "rule3": EndpointRule(needs_words=False, silence=0.0, length=2.0),
}


def appended(samples):
    return {"type": APPEND, "audio": base64_of(samples)}


def update(turns, rate=16000, **transcription):
    return {"type": "session.update", "session": session_of(turns, rate, **transcription)}


@pytest.fixture(scope="module")
def ruled(recogniser):
    """A server whose utterances end after two seconds."""
    with served(recogniser, ServeOptions(endpoints=RULES)) as running:
        yield running


def test_openais_client_and_wenets_have_the_same_texts_in_one_run(server, ruled, speech):
    async def both(url, socket_url):
        start = START | {"sample_rate": 24000}
        return await asyncio.gather(
            transcribe(url, speech), speak(socket_url, speech, start), transcribe(url, speech[::-1])
        )

    for running in (server, ruled):
        events, received, others = asyncio.run(both(running.url, running.socket_url))
        assert transcripts(events) == [" ".join(sentences(received))] != [""]
        assert transcripts(others) != transcripts(events)


def test_the_example_of_the_manual_gets_the_text(server, speech):
    page = (Path(__file__).parents[3] / "docs/how-to/serve.md").read_text()
    (example,) = [block for block in page.split("```python\n") if "realtime.connect" in block]
    names = {}
    exec(example.partition("```")[0].replace("http://127.0.0.1:10086", server.url), names)
    text = asyncio.run(names["transcribe"](speech.astype("<i2").tobytes()))
    assert [text] == transcripts(asyncio.run(transcribe(server.url, speech))) != [""]


def test_a_turn_that_the_client_commits_has_the_events_of_the_api(server, speech):
    events = asyncio.run(transcribe(server.url, speech))
    assert [kind for kind in kinds(events) if kind != DELTA] == [
        "session.created",
        "session.updated",
        "input_audio_buffer.committed",
        DONE,
    ]
    assert DELTA in kinds(events)
    created, updated = events[:2]
    assert created["session"]["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
    assert created["session"]["audio"]["input"]["turn_detection"]["type"] == "server_vad"
    assert updated["session"]["audio"]["input"]["turn_detection"] is None
    assert created["session"]["id"] == updated["session"]["id"]
    items = {event["item_id"] for event in events if "item_id" in event}
    assert len(items) == 1
    assert len({event["event_id"] for event in events}) == len(events)
    assert events[-1]["usage"] == {"type": "duration", "seconds": 4.0}


def test_deltas_only_add_to_the_text_and_the_last_event_has_all_of_it(ruled, speech):
    events = asyncio.run(transcribe(ruled.url, speech))
    told = "".join(event["delta"] for event in events if event["type"] == DELTA)
    assert told
    # CTC's partial texts are rescored at last, so that words may differ, not their places.
    assert told.split()[0][0] == events[-1]["transcript"][0]


def test_pauses_end_turns_if_the_client_wants_turn_detection(ruled, recogniser, speech):
    turns = {"type": "server_vad", "silence_duration_ms": 300, "threshold": 0.5}

    async def talk():
        async with async_client(ruled.url).realtime.connect(model="any") as connection:
            await connection.session.update(session=session_of(turns, rate=16000))
            await append(connection, speech)
            await connection.input_audio_buffer.commit()
            events = await events_until(connection, "input_audio_buffer.committed", 3)
            return events + await events_until(connection, DONE)

    events = asyncio.run(talk())
    assert events[1]["session"]["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "silence_duration_ms": 300,
    }
    first = [event for event in events if event.get("item_id") == events[2]["item_id"]]
    assert kinds(first)[0] == "input_audio_buffer.speech_started"
    assert kinds(first)[-1] == DONE
    assert [kind for kind in kinds(first) if "buffer" in kind] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
    ]
    started = [e["audio_start_ms"] for e in events if e["type"].endswith("speech_started")]
    stopped = [e["audio_end_ms"] for e in events if e["type"].endswith("speech_stopped")]
    assert all(start < stop for start, stop in zip(started, stopped, strict=False))
    assert started == sorted(started)
    committed = [event for event in events if event["type"].endswith("committed")]
    assert [event["previous_item_id"] for event in committed] == [
        None,
        *(event["item_id"] for event in committed[:-1]),
    ]
    seconds = sum(event["usage"]["seconds"] for event in events if event["type"] == DONE)
    assert seconds == pytest.approx(6.0, abs=0.01)


def test_a_session_has_turn_after_turn_and_each_has_the_text_that_it_has_alone(server, speech):
    parts = [speech[:32000], speech[32000:64000], speech[::-1][:48000]]

    async def talk():
        async with async_client(server.url).realtime.connect(model="any") as connection:
            await connection.session.update(session=session_of(None))
            for part in parts:  # the client waits for nothing
                await append(connection, part)
                await connection.input_audio_buffer.commit()
            return await events_until(connection, DONE, len(parts))

    together = transcripts(asyncio.run(talk()))
    assert together == [transcripts(asyncio.run(transcribe(server.url, part)))[0] for part in parts]


def test_audio_that_is_cleared_is_in_no_text_and_its_time_counts(ruled, speech):
    clear = {"type": "input_audio_buffer.clear"}
    sent = (appended(speech[:40000]), COMMIT)
    cleared = asyncio.run(answers(ruled.url, update({}), appended(speech), clear, *sent))
    plain = asyncio.run(answers(ruled.url, update({}), *sent))

    def start(events):
        starts = [e for e in events if e["type"].endswith("speech_started")]
        return starts[0]["audio_start_ms"]

    place = [event["type"] for event in cleared].index("input_audio_buffer.cleared")
    assert transcripts(cleared[place:]) == transcripts(plain) != [""]
    assert start(cleared[place:]) == 6000 + start(plain)


@pytest.mark.third
@pytest.mark.parametrize(("name", "kind"), [("g711_ulaw", "ULAW"), ("audio/pcma", "ALAW")])
def test_g711_is_decoded(server, speech, tmp_path, name, kind):
    path = tmp_path / "talk.raw"
    soundfile.write(path, speech[::2], 8000, format="RAW", subtype=kind)
    decoded, _ = soundfile.read(
        path, dtype="int16", format="RAW", subtype=kind, samplerate=8000, channels=1
    )
    session = {"input_audio_format": name, "turn_detection": None}
    audio = {"type": APPEND, "audio": base64.b64encode(path.read_bytes()).decode()}
    older = {"type": "session.update", "session": session}
    events = asyncio.run(answers(server.url, older, audio, COMMIT))
    plain = asyncio.run(answers(server.url, update(None, 8000), appended(decoded), COMMIT))
    named = {"ULAW": "audio/pcmu", "ALAW": "audio/pcma"}[kind]
    assert events[1]["session"]["audio"]["input"]["format"] == {"type": named}
    assert transcripts(events) == transcripts(plain) != [""]


def test_the_prompt_and_keywords_are_hot_words(recogniser, speech):
    mode = {"mode": "ctc_prefix_beam_search", "hot_word_score": 20.0}
    with served(recogniser, ServeOptions(transcribing=mode, endpoints={})) as running:
        start = START | {"hot_words": ["hag", "g h"], "sample_rate": 24000}
        (hot,) = sentences(asyncio.run(speak(running.socket_url, speech, start)))
        (plain,) = transcripts(asyncio.run(transcribe(running.url, speech)))
        prompted = asyncio.run(transcribe(running.url, speech, prompt="hag, g h; Überraschung."))
        (named,) = transcripts(
            asyncio.run(transcribe(running.url, speech, keywords=["hag", "g h"]))
        )
    assert transcripts(prompted) == [named] == [hot] != [plain]
    assert prompted[1]["warnings"] == ["the units cannot spell: Überraschung"]


def test_an_update_ends_the_turn_before_it_and_no_audio_is_lost(server, speech):
    half = len(speech) // 2

    async def talk():
        async with async_client(server.url).realtime.connect(model="any") as connection:
            await connection.session.update(session=session_of(None))
            await append(connection, speech[:half])
            await connection.session.update(session=session_of(None))  # nothing changes
            await append(connection, speech[half:])
            await connection.session.update(session=session_of({"type": "server_vad"}))
            await append(connection, speech[:half])
            await connection.input_audio_buffer.commit()
            return await events_until(connection, DONE, 2)

    events = asyncio.run(talk())
    (whole,) = transcripts(asyncio.run(transcribe(server.url, speech)))
    (part,) = transcripts(asyncio.run(transcribe(server.url, speech[:half])))
    assert transcripts(events) == [whole, part]
    order = [event["type"] for event in events if event["type"] in ("session.updated", DONE)]
    assert order == ["session.updated", "session.updated", DONE, "session.updated", DONE]


@pytest.mark.parametrize("with_audio", [True, False])
def test_a_server_that_stops_ends_the_turn_and_sends_its_text(server, speech, with_audio):
    first, second = speech[:24000], speech[24000:48000]

    async def talk():
        async with async_client(server.url).realtime.connect(model="any") as connection:
            await connection.session.update(session=session_of(None))
            await append(connection, first)
            await connection.input_audio_buffer.commit()
            events = await events_until(connection, DONE)
            if with_audio:
                await append(connection, second)
                events += await events_until(connection, DELTA)
            (session,) = server.server._sessions
            session._engine._loop.call_soon_threadsafe(session.stop)
            events += [event.to_dict(warnings=False) async for event in connection]
            return events, connection._connection.close_code

    events, code = asyncio.run(talk())
    assert code == 1001
    (text,) = transcripts(asyncio.run(transcribe(server.url, first)))
    assert transcripts(events)[0] == text
    assert len(transcripts(events)) == 1 + with_audio


@pytest.mark.parametrize(
    "event",
    [
        {"type": "session.update", "session": {"type": "transcription"}},
        {"type": "input_audio_buffer.append", "audio": ""},
        {"type": "input_audio_buffer.append", "audio": "AAA="},
        {"type": "input_audio_buffer.clear"},
        {"type": "unknown"},
    ],
    ids=lambda event: f"{event['type']} {event.get('audio')}",
)
def test_events_without_audio_to_speak_of_keep_no_place(recogniser, event):
    limits = Limits(idle_seconds=0.6)

    async def repeat(server):
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(f"{server.socket_url}/v1/realtime") as socket,
        ):
            end = asyncio.get_running_loop().time() + 20
            while asyncio.get_running_loop().time() < end:
                try:
                    await socket.send_json(event)
                except ConnectionError:
                    return True
                try:
                    message = await socket.receive(0.1)
                except asyncio.TimeoutError:
                    continue
                if message.type != aiohttp.WSMsgType.TEXT or "no message for" in message.data:
                    return True
        return False

    with served(recogniser, ServeOptions(endpoints={}, limits=limits)) as server:
        assert asyncio.run(repeat(server))
