import asyncio
import threading

import numpy as np
import pytest

from tests.support.serve.clients import sentences, served, speak
from tests.support.serve.raw_clients import until
from wenet_uio.addons.serve.engine import Engine
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import Limits, ServeOptions


@pytest.fixture
def slow_engine(slow_down):
    """Each step takes 0.2 s longer."""
    slow_down(0.2)


def test_a_client_that_is_slowed_down_or_waits_is_neither_idle_nor_taken_for_vanished(
    recogniser, speech, slow_engine, monkeypatch
):
    """While its audio waits, the server reads neither its messages nor its answers to pings."""
    monkeypatch.setattr("wenet_uio.addons.serve.session.HEARTBEAT", 0.1)
    options = ServeOptions(endpoints={}, limits=Limits(idle_seconds=0.5, queue_seconds=0.5))
    with served(recogniser, options) as server:
        received = asyncio.run(speak(server.socket_url, speech, packet=len(speech) // 2))
    assert received[-1]["type"] == "speech_end"
    assert sentences(received)[0]


def test_hot_words_that_take_long_to_prepare_delay_no_other_client(recogniser, speech, monkeypatch):
    """The slow client is let go when the other one has its text."""
    done = threading.Event()
    live = recogniser.live

    def slowly(**options):
        if options.get("hot_words"):
            done.wait(20)
        return live(**options)

    monkeypatch.setattr(recogniser, "live", slowly)

    async def both(url):
        slow = asyncio.create_task(speak(url, speech, {"signal": "start", "hot_words": ["abc"]}))
        while not server.server._sessions:
            await asyncio.sleep(0.01)
        quick = await speak(url, speech)
        waits = not slow.done()
        done.set()
        return quick, waits, await slow

    with served(recogniser, ServeOptions(endpoints={})) as server:
        quick, waits, slow = asyncio.run(both(server.socket_url))
    assert waits
    assert sentences(quick)[0]
    assert sentences(slow)[0]


def test_a_stream_that_fails_ends_alone_and_the_others_go_on(recogniser, speech):
    async def run():
        engine = Engine(asyncio.get_running_loop(), 8, Metrics())
        engine.start()
        news = {name: [] for name in ("good", "broken", "wrong")}
        ended = {name: asyncio.Event() for name in news}

        def open_stream(name):
            stream = recogniser.live(endpoints={})
            if name == "broken":
                stream._absorb_audio = None  # fails where no check of ours looks
            return stream

        def deliver(name, update):
            news[name].append(update)
            if update.finished:
                ended[name].set()

        for name in news:
            seat = engine.open(open_stream(name), lambda update, name=name: deliver(name, update))
            engine.push(seat, np.zeros((2, 2, 2), np.int16) if name == "wrong" else speech)
            engine.end(seat)
        for event in ended.values():
            await asyncio.wait_for(event.wait(), 20)
        engine.stop()
        await asyncio.to_thread(engine.join)
        return news

    news = asyncio.run(run())
    last = {name: updates[-1].events[-1] for name, updates in news.items()}
    assert last["good"].texts[0]
    assert "shape" in str(last["wrong"].error)
    assert isinstance(last["broken"].error, TypeError)


def test_packets_that_come_before_the_next_step_are_one_job(recogniser, speech):
    async def text_of(packets):
        engine = Engine(asyncio.get_running_loop(), 8, Metrics())
        news, ended = [], asyncio.Event()

        def deliver(update):
            news.append(update)
            if update.finished:
                ended.set()

        seat = engine.open(recogniser.live(endpoints={}), deliver)
        for packet in packets:
            engine.push(seat, packet)
        engine.end(seat)
        jobs = len(engine._jobs)
        engine.start()
        await asyncio.wait_for(ended.wait(), 20)
        engine.stop()
        await asyncio.to_thread(engine.join)
        return jobs, news[-1].events[-1].texts

    jobs, texts = asyncio.run(text_of(speech.reshape(-1, 4)))
    assert jobs == 3  # open, push, end
    assert texts[0]
    assert (jobs, texts) == asyncio.run(text_of([speech]))


def test_memory_is_returned_when_there_is_no_work_and_the_next_stream_has_the_same_text(
    server, speech
):
    engine = server.server._engine
    texts = []
    for _ in range(2):
        texts += sentences(asyncio.run(speak(server.socket_url, speech)))
        assert until(lambda: not engine._worked)
    assert texts[0] == texts[1] != ""
