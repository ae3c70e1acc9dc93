"""Clients of a server, in a process of its own, while strangers do what they can."""

import asyncio
import re
import signal
import time

import aiohttp
import numpy as np
import pytest

from tests.addons.listen.conftest import write_model
from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import sentences, speak
from tests.support.serve.processes import server_process
from tests.support.serve.strangers import FORM, PATH, crowd


async def resident(url):
    """MB of memory of the server."""
    async with aiohttp.ClientSession() as client, client.get(f"{url}/metrics") as answer:
        (size,) = re.findall(r"^process_resident_memory_bytes (\S+)$", await answer.text(), re.M)
        return float(size) / 1e6


async def measure(url, samples, rounds):
    """Texts of streams and recordings, and the seconds of each."""
    content = encoded(samples)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + content + b"\r\n--x--\r\n"
    )
    texts, seconds = set(), []

    async def stream():
        texts.add(sentences(await speak(url.replace("http", "ws"), samples))[0])

    async def upload():
        async with (
            aiohttp.ClientSession() as client,
            client.post(url + PATH, data=body, headers=FORM) as answer,
        ):
            texts.add((await answer.json()).get("text", f"status {answer.status}"))

    async def look():
        async with aiohttp.ClientSession() as client, client.get(f"{url}/health") as answer:
            assert answer.status == 200

    for _ in range(rounds):
        for act in (stream, upload, look):
            start = time.monotonic()
            await act()
            seconds.append(time.monotonic() - start)

    return texts, float(np.percentile(seconds, 95))


async def compare(url, samples, rounds, **strangers):
    """(texts, p95 in s) alone and among strangers; MB that the server grew by."""
    await measure(url, samples, 2)
    before = await resident(url)
    alone = await measure(url, samples, rounds)
    async with crowd(url, **strangers) as sent_away:
        among = await measure(url, samples, rounds)
        grown = await resident(url) - before
        assert sent_away() > 0
    return alone, among, grown


@pytest.mark.all
def test_strangers_change_neither_texts_nor_times_of_clients_and_take_little_memory(
    tmp_path, speech
):
    model = write_model(tmp_path / "bursts")
    crowds = {"idle": 1000, "silent": 64, "slow": 40, "bombs": True}
    with server_process(model) as server:
        alone, among, grown = asyncio.run(compare(server.url, speech[:32000], 8, **crowds))
        server.send(signal.SIGTERM)
        server.wait()
    print(f"p95 {alone[1]:.2f} s alone, {among[1]:.2f} s among strangers; {grown:.0f} MB more")
    assert max(alone[0])
    assert among[0] == alone[0]
    assert among[1] < 5 * alone[1] + 1
    assert grown < 200
    assert len("".join(server.log)) < 2000, server.log[:20]
