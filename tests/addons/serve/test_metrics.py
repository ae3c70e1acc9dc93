"""Latencies and real-time factors on the page of Prometheus."""

import asyncio
import io

import aiohttp
import pytest

from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, served, speak
from tests.support.serve.strangers import PATH
from wenet_uio.addons.serve.options import ServeOptions


async def page(url):
    async with aiohttp.ClientSession() as client, client.get(f"{url}/metrics") as answer:
        return await answer.text()


def values(server, name):
    """{labels: value} of a metric."""
    lines = asyncio.run(page(server.url)).splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return {series.removeprefix(name).strip(): float(value) for series, _, value in found}


def below(server, name, bound, kind=None):
    """How many observations are at most `bound`."""
    labels = f'le="{bound}"' if kind is None else f'kind="{kind}",le="{bound}"'
    return values(server, f"{name}_bucket")[f"{{{labels}}}"]


@pytest.fixture
def slow_engine(slow_down):
    """Each step takes 0.3 s longer."""
    slow_down(0.3)


def test_a_stream_has_a_first_partial_a_final_and_a_queue_for_each_step(recogniser, speech):
    with served(recogniser, ServeOptions(endpoints={})) as server:
        for _ in range(2):
            asyncio.run(speak(server.socket_url, speech))
        steps = values(server, "wenet_uio_step_seconds_count")[""]
        assert values(server, "wenet_uio_first_partial_seconds_count") == {"": 2}
        assert values(server, "wenet_uio_final_seconds_count")['{kind="stream"}'] == 2
        assert values(server, "wenet_uio_queue_seconds_count")['{kind="stream"}'] == steps
        factors = values(server, "wenet_uio_real_time_factor_count")['{kind="stream"}']
        assert steps / 2 < factors <= steps


def test_latencies_contain_the_time_of_slow_steps(recogniser, speech, slow_engine):
    """Two streams whose audio comes at once: chunks wait while a step runs."""

    async def two(url):
        await asyncio.gather(*(speak(url, speech[:48000], packet=48000) for _ in range(2)))

    with served(recogniser, ServeOptions(endpoints={}, stream_batch=1)) as server:
        asyncio.run(two(server.socket_url))
        assert below(server, "wenet_uio_first_partial_seconds", 0.3) == 0
        assert below(server, "wenet_uio_final_seconds", 0.5, "stream") == 0
        steps = values(server, "wenet_uio_step_seconds_count")[""]
        # Most chunks wait for a step of the other stream.
        assert values(server, "wenet_uio_queue_seconds_sum")['{kind="stream"}'] > 0.2 * steps / 2


def test_a_stream_without_a_text_has_no_first_partial_and_one_that_vanishes_no_final(
    recogniser, speech
):
    async def vanish(url):
        async with aiohttp.ClientSession() as client, client.ws_connect(url) as stream:
            await stream.send_json(START)
            await stream.receive_json()

    with served(recogniser, ServeOptions(endpoints={})) as server:
        asyncio.run(vanish(server.socket_url))
        asyncio.run(speak(server.socket_url, speech[:0]))
        assert values(server, "wenet_uio_first_partial_seconds_count") == {"": 0}
        assert values(server, "wenet_uio_final_seconds_count") == {'{kind="stream"}': 1}


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_recording_has_a_final_a_queue_and_a_factor(recogniser, speech, stream):
    async def post(url):
        form = {"file": io.BytesIO(encoded(speech)), "stream": stream}
        async with aiohttp.ClientSession() as client, client.post(url + PATH, data=form) as answer:
            await answer.read()

    with served(recogniser, ServeOptions()) as server:
        asyncio.run(post(server.url))
        for name in ("final_seconds", "queue_seconds", "real_time_factor"):
            counts = values(server, f"wenet_uio_{name}_count")
            assert counts['{kind="recording"}'] >= 1, name
