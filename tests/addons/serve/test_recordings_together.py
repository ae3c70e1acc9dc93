"""Recordings of several clients at once, beside streams."""

import asyncio
import os
import signal

import aiohttp
import numpy as np
import pytest

from tests.addons.listen.conftest import TRANSDUCER, bursts, write_model
from tests.addons.listen.test_one_pass import LIMITED
from tests.addons.serve.decoders import decoders
from tests.addons.serve.held_turns import held_turns
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import sentences, served, speak
from tests.support.serve.raw_clients import until
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.serve.options import ServeOptions

BURSTS = (bursts() * 32767).astype(np.int16)
LONG = encoded(np.tile(BURSTS, 16), "FLAC")
"""More than a minute, of which each turn has a part."""
SHORT = encoded(BURSTS)


def turns_of(server):
    return server.server._transcriptions._turns


async def post(client, server, content, finished=None, **fields):
    """(status, answer) of a recording; `finished` gets the content when the answer is there.

    Sums of floats depend on the size of a batch in their last bits, so the mean log-probability is
    rounded; all else is as it came.
    """
    form = aiohttp.FormData({"response_format": "verbose_json", **fields})
    form.add_field("file", content, filename="a")
    async with client.post(f"{server.url}/v1/audio/transcriptions", data=form) as answer:
        result = answer.status, await answer.json()
    for segment in result[1].get("segments", ()):
        segment["avg_logprob"] = round(segment["avg_logprob"], 4)
    if finished is not None:
        finished.append(content)
    return result


async def waiting(server, count):
    """Wait until as many recordings wait for a turn."""
    while len(turns_of(server)._waiting) < count:
        await asyncio.sleep(0.01)


def answers_at_once(server, contents):
    """Answers to recordings that wait for their turns together."""

    async def all_of_them():
        async with aiohttp.ClientSession() as client:
            with held_turns(turns_of(server)) as release:
                asked = [asyncio.create_task(post(client, server, content)) for content in contents]
                await waiting(server, len(contents))
                release()
                return await asyncio.gather(*asked)

    return asyncio.run(asyncio.wait_for(all_of_them(), 120))


@pytest.mark.parametrize(
    ("sections", "mode"),
    [
        ((), "attention_rescoring"),
        pytest.param((), "ctc_prefix_beam_search", marks=pytest.mark.all),
        pytest.param(TRANSDUCER, "rnnt_beam_search", marks=pytest.mark.all),
    ],
)
def test_recordings_at_once_have_the_answers_of_each_alone(tmp_path, sections, mode):
    recogniser = load_model(write_model(tmp_path, sections), device="cpu")
    parts = [BURSTS[: 16000 * seconds] for seconds in (6, 3, 5, 1)]
    contents = [encoded(part) for part in (*parts, np.tile(BURSTS, 12))]
    with served(recogniser, ServeOptions(transcribing={"mode": mode})) as server:
        alone = [answers_at_once(server, [content])[0] for content in contents]
        assert answers_at_once(server, contents) == alone
        assert answers_at_once(server, contents[::-1]) == alone[::-1]
    assert [status for status, _ in alone] == [200] * len(contents)
    assert all(answer["words"] for _, answer in alone)


def test_recordings_with_other_hot_words_and_channels_are_not_mixed_up(tmp_path):
    recogniser = load_model(write_model(tmp_path), device="cpu")
    call = encoded(np.stack((BURSTS, np.roll(BURSTS, len(BURSTS) // 6)), axis=1))
    requests = [
        (SHORT, {"hot_words": "hag"}),
        (SHORT, {"hot_words": "g h"}),
        (SHORT, {}),
        (call, {"channel": "1"}),
        (call, {"channel": "each"}),
    ]
    options = {"mode": "ctc_prefix_beam_search", "hot_word_score": 20.0}

    async def answers(server):
        async with aiohttp.ClientSession() as client:
            alone = [await post(client, server, content, **more) for content, more in requests]
            with held_turns(turns_of(server)) as release:
                asked = [
                    asyncio.create_task(post(client, server, content, **more))
                    for content, more in requests
                ]
                await waiting(server, len(requests))
                release()
                return alone, await asyncio.gather(*asked)

    with served(recogniser, ServeOptions(transcribing=options)) as server:
        alone, together = asyncio.run(asyncio.wait_for(answers(server), 120))
    assert together == alone
    assert len({answer["text"] for _, answer in alone}) >= 4


def test_a_long_recording_does_not_hold_short_ones_that_come_later(server):
    finished = []

    async def long_first():
        async with aiohttp.ClientSession() as client:
            with held_turns(turns_of(server)) as release:
                asked = [asyncio.create_task(post(client, server, LONG, finished))]
                await waiting(server, 1)
                asked += [
                    asyncio.create_task(post(client, server, SHORT, finished)) for _ in range(3)
                ]
                await waiting(server, 4)
                release()
                return await asyncio.gather(*asked)

    answers = asyncio.run(asyncio.wait_for(long_first(), 120))
    assert [status for status, _ in answers] == [200] * 4
    assert finished == [SHORT, SHORT, SHORT, LONG]


def test_a_decoder_that_crashes_ends_its_recording_with_one_line_and_no_stream_or_other_recording(
    server, speech
):
    expected = sentences(asyncio.run(speak(server.socket_url, speech)))

    async def crash():
        async with aiohttp.ClientSession() as client:
            alone = await post(client, server, SHORT)
            with held_turns(turns_of(server)) as release:
                crashing = asyncio.create_task(post(client, server, LONG))
                await waiting(server, 1)
                (decoder,) = decoders(server.server._transcriptions._processes)
                beside = asyncio.create_task(post(client, server, SHORT))
                stream = asyncio.create_task(speak(server.socket_url, speech, packet=1600))
                await waiting(server, 2)
                os.kill(decoder, signal.SIGSEGV)
                release()
                answers = [await crashing, await beside, await post(client, server, SHORT)]
                return alone, answers, sentences(await stream)

    alone, (crashed, *others), spoken = asyncio.run(asyncio.wait_for(crash(), 120))
    message = "the decoder crashed its process (SIGSEGV); remove or convert the audio"
    assert (crashed[0], crashed[1]["error"]["message"]) == (400, message)
    assert others == [alone, alone]
    assert spoken == expected != [""]


def test_a_decoder_that_crashes_is_an_event_where_the_text_comes_in_events(server):
    async def crash():
        async with aiohttp.ClientSession() as client:
            with held_turns(turns_of(server)) as release:
                form = aiohttp.FormData({"stream": "true"})
                form.add_field("file", LONG, filename="a")
                url = f"{server.url}/v1/audio/transcriptions"
                async with client.post(url, data=form) as answer:
                    await waiting(server, 1)
                    (decoder,) = decoders(server.server._transcriptions._processes)
                    os.kill(decoder, signal.SIGSEGV)
                    release()
                    return await answer.text()

    events = asyncio.run(asyncio.wait_for(crash(), 120)).strip().split("\n\n")
    assert "the decoder crashed its process (SIGSEGV)" in events[-1]
    assert '"type": "error"' in events[-1]


def test_decoders_end_with_their_recordings_and_with_their_clients(server):
    processes = server.server._transcriptions._processes

    async def vanish():
        async with aiohttp.ClientSession() as client:
            with held_turns(turns_of(server)):
                asked = [asyncio.create_task(post(client, server, LONG)) for _ in range(3)]
                await waiting(server, 3)
                started = len(decoders(processes))
                for request in asked:
                    request.cancel()
                return started, await asyncio.to_thread(until, lambda: not decoders(processes))

    assert asyncio.run(asyncio.wait_for(vanish(), 120)) == (3, True)
    assert until(lambda: not server.server._transcriptions.busy)


def test_recordings_in_one_pass_take_turns_too(tmp_path):
    recogniser = load_model(write_model(tmp_path, **LIMITED), device="cpu")
    contents = [SHORT, encoded(np.tile(BURSTS, 3)), SHORT]
    with served(recogniser, ServeOptions(transcribing={"one_pass": True})) as server:
        alone = [answers_at_once(server, [content])[0] for content in contents]
        assert answers_at_once(server, contents) == alone
    assert all(answer["words"] for _, answer in alone)
