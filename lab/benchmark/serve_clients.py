"""Clients of the server for serve.py: WeNet's WebSocket protocol, at the pace of speech or as fast
as it is taken.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import aiohttp
import numpy as np

RATE = 16000
PACKET = 1600
"""Samples of a packet."""
CHUNK_SECONDS = 0.64
"""Seconds of a chunk: 16 encoder frames of 40 ms."""
START = {"signal": "start", "nbest": 1, "continuous_decoding": True}
PATIENCE = 1800.0
"""Seconds after which a client gives up."""


class Told(NamedTuple):
    """A result of a stream."""

    packet: int
    """Number of the packet after which the stream had the audio of this result."""
    final: bool
    text: str


class Talk(NamedTuple):
    """What a client says."""

    samples: np.ndarray
    """(N,) int16."""
    told: list[Told]
    """What a stream alone tells."""

    @property
    def finals(self) -> list[str]:
        """The texts of the utterances."""
        return [told.text for told in self.told if told.final]


class Heard(NamedTuple):
    """What a client has sent and received."""

    sent: list[float]
    """When each packet was sent."""
    received: list[tuple[float, dict[str, Any]]]

    @property
    def finals(self) -> list[str]:
        """The texts of the utterances."""
        texts = (
            _text_of(message)
            for _, message in self.received
            if message.get("type") == "final_result"
        )
        return [text for text in texts if text]


def _text_of(message: dict[str, Any]) -> str:
    return json.loads(message["nbest"])[0]["sentence"]


async def speak(url: str, samples: np.ndarray, begin: float | None) -> Heard:
    """Send samples as one stream.

    Args:
        begin: time of the first packet, whose successors follow at the pace of speech; None: as
            fast as it is taken.
    """
    answer = Heard([], [])
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(url.replace("http", "ws", 1), max_msg_size=0) as socket,
    ):
        await socket.send_json(START)

        async def send() -> None:
            for number, place in enumerate(range(0, len(samples), PACKET)):
                if begin is not None:
                    # A packet is sent when its last sample was spoken.
                    await asyncio.sleep(begin + (number + 1) * PACKET / RATE - time.monotonic())
                answer.sent.append(time.monotonic())
                await socket.send_bytes(samples[place : place + PACKET].tobytes())

            await socket.send_json({"signal": "end"})

        sending = asyncio.create_task(send())
        async for message in socket:
            if message.type == aiohttp.WSMsgType.TEXT:
                answer.received.append((time.monotonic(), json.loads(message.data)))

        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    return answer


def speak_together(
    url: str, talks: Sequence[Talk], clients: int, *, real_time: bool
) -> list[Heard]:
    """Let several clients speak at once; client n says talk n modulo the number of talks.

    In real time the clients begin at different times within one chunk, as independent clients do.
    """
    phases = np.random.default_rng(1).permutation(clients) / clients * CHUNK_SECONDS

    async def together() -> list[Heard]:
        now = time.monotonic() + 0.5
        begins = [now + phase if real_time else None for phase in phases]
        streams = [
            speak(url, talks[n % len(talks)].samples, begin) for n, begin in enumerate(begins)
        ]
        return await asyncio.wait_for(asyncio.gather(*streams), PATIENCE)

    return asyncio.run(together())


def delays_of(talk: Talk, answer: Heard) -> tuple[list[float], list[float]]:
    """Return seconds from sending the packet with the last sample of a chunk to the result of this
    chunk: partial, final.

    The server sends a partial text when it has changed, so results are matched by their texts, in
    order. Results at the end of the stream are left out, because they do not wait for a whole
    chunk.
    """
    delays: tuple[list[float], list[float]] = ([], [])
    last, place = len(answer.sent) - 1, 0
    for at, message in answer.received:
        if message.get("type") not in ("partial_result", "final_result"):
            continue
        wanted = message["type"] == "final_result", _text_of(message)
        for later in range(place, len(talk.told)):
            told = talk.told[later]
            if (told.final, told.text) == wanted:
                place = later + 1
                if told.packet < last:
                    delays[wanted[0]].append(at - answer.sent[told.packet])
                break

    return delays


def speak_on(
    url: str, samples: np.ndarray, clients: int, minutes: float, look: Callable[[], None]
) -> None:
    """Let clients repeat samples for some minutes of audio each, as fast as it is taken.

    `look` is called every half second.
    """
    repeats = max(1, round(minutes * 60 * RATE / len(samples)))

    async def one(shift: int) -> None:
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(url.replace("http", "ws", 1), max_msg_size=0) as socket,
        ):
            await socket.send_json(START)

            async def drain() -> None:
                async for _ in socket:
                    pass

            drained = asyncio.create_task(drain())
            rolled = np.roll(samples, shift)
            for _ in range(repeats):
                for place in range(0, len(rolled), PACKET * 5):
                    await socket.send_bytes(rolled[place : place + PACKET * 5].tobytes())

            await socket.send_json({"signal": "end"})
            await drained

    async def together() -> None:
        streams = [asyncio.create_task(one(len(samples) // clients * n)) for n in range(clients)]
        while not all(stream.done() for stream in streams):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(look)

        await asyncio.gather(*streams)

    asyncio.run(asyncio.wait_for(together(), 4 * PATIENCE))
