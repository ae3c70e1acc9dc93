import asyncio

import numpy as np

from wenet_uio.serve.engine import Engine
from wenet_uio.serve.metrics import Metrics


def test_a_stream_that_fails_ends_alone_and_the_others_go_on(recogniser, speech):
    async def run():
        engine = Engine(asyncio.get_running_loop(), 8, Metrics())
        engine.start()
        news = {name: [] for name in ("good", "broken", "wrong", "never")}
        ended = {name: asyncio.Event() for name in news}

        def open_stream(name):
            if name == "never":
                raise ValueError("no such model")
            stream = recogniser.live(endpoints={})
            if name == "broken":
                stream.take = None  # fails where no check of ours looks
            return stream

        def deliver(name, heard):
            news[name].append(heard)
            if heard.finished:
                ended[name].set()

        for name in news:
            seat = engine.open(lambda name=name: open_stream(name), lambda heard, name=name: deliver(name, heard))
            engine.push(seat, np.zeros((2, 2, 2), np.int16) if name == "wrong" else speech)
            engine.end(seat)
        for event in ended.values():
            await asyncio.wait_for(event.wait(), 20)
        engine.stop()
        await asyncio.to_thread(engine.join)
        return news

    news = asyncio.run(run())
    assert news["good"][-1].error is None
    assert news["good"][-1].events[-1].texts[0]
    assert "shape" in str(news["wrong"][-1].error)
    assert str(news["never"][-1].error) == "no such model"
    assert isinstance(news["broken"][-1].error, TypeError)
