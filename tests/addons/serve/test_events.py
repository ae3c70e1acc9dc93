"""`stream=true` of OpenAI's API: the text of a recording while it is transcribed."""

import asyncio
import io
import json
import threading
import time

import aiohttp
import numpy as np
import pytest

from tests.addons.listen.conftest import bursts
from tests.addons.serve.test_transcriptions import encoded, post
from tests.support.serve.clients import openai_client, served
from wenet_uio.addons.serve import events
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.audio.decoders import AudioError


@pytest.fixture(scope="module")
def speech(speech):
    """Bursts for longer than a window, so that the recording is cut at its pauses."""
    return np.tile(speech, 4)


@pytest.fixture
def client(server):
    return openai_client(server.url)


def events_of(client, content, **fields):
    request = client.audio.transcriptions.create
    return list(request(model="any", file=("talk.wav", content), stream=True, **fields))


async def raw_events(url, content, **fields):
    """Yield the objects of a stream as they come, read without the package openai."""
    form = {"file": io.BytesIO(content), "stream": "true", **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/audio/transcriptions", data=form) as answer,
    ):
        assert answer.content_type == "text/event-stream"
        async for line in answer.content:
            if line.strip():
                yield line.decode().strip()


def slowed(recogniser, monkeypatch, *, after_first=None):
    """Let the recogniser wait for `after_first` when it has given its first segment."""
    iterate = recogniser.iterate

    def slowly(*arguments):
        for number, item in enumerate(iterate(*arguments)):
            if number == 1 and after_first is not None:
                after_first()
            yield item

    monkeypatch.setattr(recogniser, "iterate", slowly)


@pytest.mark.third
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", ["json", "text", "verbose_json"])
def test_the_parts_of_a_streamed_text_are_together_the_text_of_the_recording(
    client, recogniser, speech, kind, channels
):
    turns = [np.roll(speech, 16000 * number) for number in range(channels)]
    recording = encoded(np.stack(turns, axis=1))
    expected = recogniser.transcribe(recording)
    assert ("[left]" in expected.text) == (channels == 2)
    *parts, last = events_of(client, recording, response_format=kind)
    assert (last.type, last.text) == ("transcript.text.done", expected.text)
    assert {part.type for part in parts} == {"transcript.text.delta"}
    assert "".join(part.delta for part in parts) == expected.text
    assert len(parts) == 1 + len(expected.segments)
    assert [part.seconds for part in parts] == [
        0,
        *(round(segment.end, 3) for segment in expected.segments),
    ]
    assert {part.duration for part in parts} == {expected.seconds}


def test_streamed_segments_are_those_of_the_whole_answer(client, speech):
    whole = client.audio.transcriptions.create(
        model="any", file=("t.wav", encoded(speech)), response_format="verbose_json", language="en"
    ).to_dict()
    _, *parts, last = events_of(
        client, encoded(speech), response_format="verbose_json", language="en"
    )
    assert [part.segment for part in parts] == whole["segments"]
    assert {"type": "transcript.text.done", **whole} == last.to_dict()


def test_a_segment_is_sent_before_the_next_one_is_recognised(recogniser, speech, monkeypatch):
    has_come = threading.Event()
    slowed(recogniser, monkeypatch, after_first=lambda: has_come.wait(30))
    with served(recogniser, ServeOptions()) as server:

        async def read():
            received = []
            async for line in raw_events(server.url, encoded(speech)):
                received.append(json.loads(line.removeprefix("data: ")))
                if len(received) == 2:
                    assert received[1]["delta"]
                    has_come.set()
            return received

        started = time.monotonic()
        assert len(asyncio.run(read())) > 3
    assert time.monotonic() - started < 30


def test_silence_has_a_streamed_text_that_is_empty(client):
    first, last = events_of(client, encoded(np.zeros(32000, np.int16)))
    assert (first.delta, first.duration, last.text) == ("", 2.0, "")


@pytest.mark.parametrize(
    ("content", "fields", "status", "message"),
    [
        (b"no sound", {}, 400, ""),
        (
            None,
            {"response_format": "srt"},
            400,
            "stream: response_format srt is written as a whole",
        ),
        (encoded(np.zeros(8 * 16000, np.int16)), {}, 413, "a recording may have 7 s of audio"),
    ],
)
def test_a_request_that_fails_before_its_first_text_has_the_status_of_its_error(
    recogniser, speech, content, fields, status, message
):
    with served(recogniser, ServeOptions(limits=Limits(max_seconds=7.0))) as server:
        form = {"file": io.BytesIO(content or encoded(speech)), "stream": "1", **fields}
        found, answer = post(f"{server.url}/v1/audio/transcriptions", data=form)
    assert found == status
    assert message in answer["error"]["message"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AudioError("the file ends early"), "the file ends early"),
        (RuntimeError("secret"), "the server failed at this request"),
    ],
)
def test_an_error_after_the_first_text_is_an_event_that_the_openai_package_raises(
    recogniser, speech, monkeypatch, error, message
):
    import openai

    def fail():
        raise error

    slowed(recogniser, monkeypatch, after_first=fail)
    with served(recogniser, ServeOptions()) as server:
        client = openai_client(server.url)
        parts = client.audio.transcriptions.create(
            model="any", file=("t.wav", encoded(speech)), stream=True
        )
        with pytest.raises(openai.APIError) as raised:
            list(parts)
        assert raised.value.body["message"] == message
        assert events_of_busy(server) == 0


def events_of_busy(server):
    """Recordings that the server still has, when it had time to end them."""
    until = time.monotonic() + 30
    while server.server._transcriptions.busy and time.monotonic() < until:
        time.sleep(0.02)
    return server.server._transcriptions.busy


def test_a_client_that_leaves_a_streamed_text_ends_its_work(recogniser, monkeypatch):
    long = encoded(np.tile((bursts() * 32767).astype(np.int16), 40), "FLAC")
    segments = []
    iterate = recogniser.iterate

    def slowly(*arguments):
        for item in iterate(*arguments):
            segments.append(item)
            time.sleep(0.1)
            yield item

    monkeypatch.setattr(recogniser, "iterate", slowly)
    with served(recogniser, ServeOptions()) as server:

        async def leave():
            reading = raw_events(server.url, long)
            await anext(reading)
            await anext(reading)
            await reading.aclose()

        asyncio.run(leave())
        assert events_of_busy(server) == 0
    assert len(segments) < 60


def test_a_comment_keeps_a_silent_stream_open(recogniser, speech, monkeypatch):
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(events, "SILENT_SECONDS", 0.1)
    slowed(recogniser, monkeypatch, after_first=lambda: time.sleep(0.5))
    with served(recogniser, ServeOptions()) as server:

        async def read():
            return [line async for line in raw_events(server.url, encoded(speech))]

        lines = asyncio.run(read())
    assert ": recognising" in lines
    assert len([line for line in lines if line.startswith("data: ")]) > 3


def test_a_page_of_an_allowed_origin_may_read_a_streamed_text(recogniser, speech):
    with served(recogniser, ServeOptions(origins=("https://a.example",))) as server:

        async def origin():
            form = {"file": io.BytesIO(encoded(speech)), "stream": "true"}
            headers = {"Origin": "https://a.example"}
            url = f"{server.url}/v1/audio/transcriptions"
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, data=form, headers=headers) as answer,
            ):
                return answer.headers["Access-Control-Allow-Origin"]

        assert asyncio.run(origin()) == "https://a.example"
