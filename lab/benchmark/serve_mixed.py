"""Streams at the pace of speech beside uploads, one of them of hours, for serve.py: delays, processor time,
memory, and whether anybody was thrown out.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import numpy as np
import soundfile
from serve_clients import CHUNK_SECONDS, PATIENCE, RATE, Heard, Talk, speak

LONG_RATE = 8000
"""Hz of the long recording, whose file would be larger than the server takes otherwise."""
SHORT_SECONDS = 10
"""Length of a short recording."""
SHORT_CLIENTS = 2
"""Clients that send short recordings, one after the other."""
PATH = "/v1/audio/transcriptions"


class Answered(NamedTuple):
    """The answer to a short recording."""

    status: int
    seconds: float
    """From the begin of the upload to the whole answer."""
    text: str


def encode_long(speech: np.ndarray, hours: float) -> bytes:
    """Repeat speech for some hours, as flac."""
    slow = speech[:: RATE // LONG_RATE]
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", LONG_RATE, 1, "PCM_16", format="FLAC") as encoder:
        for _ in range(max(1, round(hours * 3600 * LONG_RATE / len(slow)))):
            encoder.write(slow)
    return file.getvalue()


def encode_short(speech: np.ndarray) -> bytes:
    """Return the first seconds of speech as wav."""
    file = io.BytesIO()
    soundfile.write(file, speech[: SHORT_SECONDS * RATE], RATE, format="WAV")
    return file.getvalue()


def measure_mixed(
    server: Any, talks: Sequence[Talk], numbers: Sequence[int], uploads: tuple[bytes, bytes]
) -> list[dict[str, Any]]:
    """Let clients speak at once: each number of them alone, then each beside a long recording and short
    ones.

    Args:
        server: ServerProcess of serve.py.
    """

    async def measure_all() -> list[dict[str, Any]]:
        alone = [await _measure(server, talks, clients, None) for clients in numbers]
        async with _beside(server, uploads) as others:
            return alone + [await _measure(server, talks, clients, others) for clients in numbers]

    return asyncio.run(asyncio.wait_for(measure_all(), 4 * PATIENCE))


async def _measure(
    server: Any, talks: Sequence[Talk], clients: int, others: Others | None
) -> dict[str, Any]:
    phases = np.random.default_rng(1).permutation(clients) / clients * CHUNK_SECONDS
    spoken = [talks[number % len(talks)] for number in range(clients)]
    if others is not None:
        others.answered.clear()

    metrics = await asyncio.to_thread(server.metrics)
    begin = time.monotonic() + 0.5
    streams = [
        speak(server.url, talk.samples, begin + phase)
        for talk, phase in zip(spoken, phases, strict=True)
    ]
    speaking = asyncio.gather(*streams)
    memory = await _most_memory(server, speaking)
    heard = await speaking
    cpu = (await asyncio.to_thread(server.metrics))["process_cpu_seconds_total"]
    cpu -= metrics["process_cpu_seconds_total"]

    differ = sum(talk.finals != answer.finals for talk, answer in zip(spoken, heard, strict=True))
    figures: dict[str, Any] = {
        "clients": clients,
        "uploads": others is not None,
        **_delays(heard),
        "cpu_seconds_a_stream": round(cpu / clients, 3),
        **memory,
        "thrown_out": sum(_was_thrown_out(answer) for answer in heard),
        "differ": differ,
        "load": round(os.getloadavg()[0], 1),
        **({} if others is None else others.figures()),
    }
    print(f"mixed: {json.dumps(figures)}", flush=True)
    return figures


@dataclass
class Others:
    """What comes beside the streams."""

    answered: list[Answered]
    """Answers to short recordings."""
    long_seconds: float = 0.0
    """Of the long recording, transcribed so far."""

    def figures(self) -> dict[str, Any]:
        """Delays of short recordings, and how many failed."""
        middle, late = _percentiles([answer.seconds for answer in self.answered])
        return {
            "short_recordings": len(self.answered),
            "short_p50_s": middle,
            "short_p95_s": late,
            "short_refused": sum(answer.status != 200 for answer in self.answered),
            "short_texts": len({answer.text for answer in self.answered}),
            "long_seconds": self.long_seconds,
        }


@asynccontextmanager
async def _beside(server: Any, uploads: tuple[bytes, bytes]) -> AsyncIterator[Others]:
    """Send the long recording, and short ones when it is in work; in the block they go on."""
    long, short = uploads
    others, begun = Others([]), asyncio.Event()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(4 * PATIENCE)) as client:
        tasks = [asyncio.create_task(_send_long(client, server.url, long, begun, others))]
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()

        tasks += [
            asyncio.create_task(_send_short(client, server.url, short, others.answered))
            for _ in range(SHORT_CLIENTS)
        ]
        try:
            yield others
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _send_long(
    client: aiohttp.ClientSession, url: str, content: bytes, begun: asyncio.Event, others: Others
) -> None:
    """Read the events of a recording; `begun` is set at the first one."""
    form = aiohttp.FormData({"stream": "true"})
    form.add_field("file", content, filename="long.flac")
    async with client.post(url + PATH, data=form) as answer:
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue

            event = json.loads(line.removeprefix(b"data: "))
            if event["type"] == "error":
                raise ValueError(event["error"]["message"])
            others.long_seconds = event.get("seconds", others.long_seconds)
            begun.set()


async def _send_short(
    client: aiohttp.ClientSession, url: str, content: bytes, answered: list[Answered]
) -> None:
    while True:
        form = aiohttp.FormData()
        form.add_field("file", content, filename="short.wav")
        begin = time.monotonic()
        async with client.post(url + PATH, data=form) as answer:
            text = (await answer.json()).get("text", "")
            answered.append(Answered(answer.status, time.monotonic() - begin, text))


async def _most_memory(server: Any, working: asyncio.Future[Any]) -> dict[str, float]:
    """Return the most memory of the server, and of its processes that decode, while something works."""
    most, decoders = 0.0, 0.0
    while not working.done():
        most = max(most, _proportional_mb(server.pid))
        decoders = max(decoders, sum(map(_proportional_mb, _descendants(server.pid))))
        await asyncio.sleep(1)
    return {"memory_mb": round(most, 1), "decoders_mb": round(decoders, 1)}


def _descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    numbers: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                numbers += [child, *_descendants(child)]
    return numbers


def _proportional_mb(process: int) -> float:
    """Return the memory of a process; what several share counts in parts."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def _delays(heard: Sequence[Heard]) -> dict[str, float | None]:
    """Percentiles of the time from the first packet to the first partial text, and from the last packet
    to the last final text.
    """
    firsts, lasts = [], []
    for answer in heard:
        partials = [
            at for at, message in answer.received if message.get("type") == "partial_result"
        ]
        finals = [at for at, message in answer.received if message.get("type") == "final_result"]
        if partials:
            firsts.append(partials[0] - answer.sent[0])
        if finals:
            lasts.append(finals[-1] - answer.sent[-1])

    figures: dict[str, float | None] = {}
    for name, delays in (("first_partial", firsts), ("final", lasts)):
        figures[f"{name}_p50_s"], figures[f"{name}_p95_s"] = _percentiles(delays)
    return figures


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    middle, late = np.percentile(values, (50, 95))
    return round(float(middle), 3), round(float(late), 3)


def _was_thrown_out(answer: Heard) -> bool:
    """Tell whether a stream ended in another way than with its whole text."""
    kinds = [message.get("type") for _, message in answer.received]
    return "speech_end" not in kinds or any(
        message.get("status") == "failed" for _, message in answer.received
    )
