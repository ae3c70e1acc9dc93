import asyncio

import numpy as np

from wenet_uio.serve.engine import Engine
from wenet_uio.serve.metrics import Metrics


def test_a_stream_that_fails_ends_alone_and_the_others_go_on(recogniser, speech):
    async def run():
        engine = Engine(asyncio.get_running_loop(), 8, Metrics())
        engine.start()
        news = {name: [] for name in ("good", "broken", "wrong")}
        ended = {name: asyncio.Event() for name in news}

        def open_stream(name):
            stream = recogniser.live(endpoints={})
            if name == "broken":
                stream._absorb = None  # fails where no check of ours looks
            return stream

        def deliver(name, heard):
            news[name].append(heard)
            if heard.finished:
                ended[name].set()

        for name in news:
            seat = engine.open(open_stream(name), lambda heard, name=name: deliver(name, heard))
            engine.push(seat, np.zeros((2, 2, 2), np.int16) if name == "wrong" else speech)
            engine.end(seat)
        for event in ended.values():
            await asyncio.wait_for(event.wait(), 20)
        engine.stop()
        await asyncio.to_thread(engine.join)
        return news

    news = asyncio.run(run())
    last = {name: heard[-1].events[-1] for name, heard in news.items()}
    assert last["good"].texts[0]
    assert "shape" in str(last["wrong"].error)
    assert isinstance(last["broken"].error, TypeError)
