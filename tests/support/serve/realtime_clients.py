"""Clients of the server's realtime sessions: OpenAI's package, and one that sends what it is told."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.resources.realtime.realtime import AsyncRealtimeConnection

DONE = "conversation.item.input_audio_transcription.completed"
DELTA = "conversation.item.input_audio_transcription.delta"
RATE = 24_000
"""Hz of the API."""


def async_client(url: str, key: str = "none") -> AsyncOpenAI:
    """Return a client of OpenAI's package for a server."""
    from openai import AsyncOpenAI  # 0.5 s, which the collection of all tests would pay

    return AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def session_of(turns: dict[str, Any] | None, rate: int = RATE, **transcription: Any) -> Any:
    """The `session` of an update. `turns`: the turn detection; `rate`: in Hz."""
    audio_input = {
        "format": {"type": "audio/pcm", "rate": rate},
        "transcription": {"model": "any", **transcription},
        "turn_detection": turns,
    }
    return {"type": "transcription", "audio": {"input": audio_input}}


def base64_of(samples: np.ndarray) -> str:
    """The `audio` of an append, of int16 samples."""
    return base64.b64encode(samples.astype("<i2").tobytes()).decode()


async def append(
    connection: AsyncRealtimeConnection, samples: np.ndarray, packet: int = 4800
) -> None:
    """Send int16 samples in packets."""
    for place in range(0, len(samples), packet):
        await connection.input_audio_buffer.append(audio=base64_of(samples[place : place + packet]))


async def events_until(
    connection: AsyncRealtimeConnection, kind: str, count: int = 1
) -> list[dict[str, Any]]:
    """The events up to the one with which `count` of a type have come."""
    events: list[dict[str, Any]] = []
    while sum(event["type"] == kind for event in events) < count:
        events.append((await connection.recv()).to_dict(warnings=False))
    return events


async def transcribe(
    url: str, samples: np.ndarray, rate: int = RATE, **transcription: Any
) -> list[dict[str, Any]]:
    """The events of a session with one turn, which the client commits."""
    async with async_client(url).realtime.connect(model="any") as talk:
        await talk.session.update(session=session_of(None, rate, **transcription))
        await append(talk, samples)
        await talk.input_audio_buffer.commit()
        return await events_until(talk, DONE)


def transcripts(events: list[dict[str, Any]]) -> list[str]:
    """The texts of the turns."""
    return [event["transcript"] for event in events if event["type"] == DONE]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The types of the events; of equal ones that follow each other only the first."""
    types = [event["type"] for event in events]
    return [kind for place, kind in enumerate(types) if types[place - 1 : place] != [kind]]


async def answers(
    url: str, *messages: str | bytes | dict[str, Any], key: str = "none"
) -> list[dict[str, Any]]:
    """Send messages, then an update of a type of its own; return the events before its answer, or
    all if there is none.
    """
    events: list[dict[str, Any]] = []
    last = {"type": "transcription_session.update", "session": {}}
    headers = {"Authorization": f"Bearer {key}"}
    socket_url = url.replace("http", "ws", 1) + "/v1/realtime"
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(socket_url, headers=headers, max_msg_size=0) as socket,
    ):
        for message in (*messages, last):
            if isinstance(message, bytes):
                await socket.send_bytes(message)
            else:
                text = message if isinstance(message, str) else json.dumps(message)
                await socket.send_str(text)
        async for reply in socket:
            event = json.loads(reply.data)
            if event["type"] == "transcription_session.updated":
                break
            events.append(event)
    return events
