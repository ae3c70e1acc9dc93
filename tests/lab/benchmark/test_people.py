"""Error rates of a server for recordings with quiet around them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
from aiohttp import web

from tests.support import preloaded

ROOT = Path(__file__).parents[3]
RATE = 16000


@pytest.fixture
def server():
    """A server that says `one` to any stream; yields its address and the samples of the streams."""
    loop, started, streams, address = asyncio.new_event_loop(), threading.Event(), [], []

    async def talk(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        packets = []
        async for message in socket:
            if message.type == web.WSMsgType.BINARY:
                packets.append(message.data)
            elif json.loads(message.data)["signal"] == "end":
                break
        streams.append(np.frombuffer(b"".join(packets), np.int16))
        nbest = json.dumps([{"sentence": "one"}])
        await socket.send_json({"status": "ok", "type": "final_result", "nbest": nbest})
        await socket.close()
        return socket

    async def start():
        app = web.Application()
        app.router.add_get("/", talk)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        started.set()

    def serve():
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(20)
    yield address[0], streams
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)


def test_recordings_are_streamed_with_faint_noise_around_them_and_scored(server, tmp_path):
    url, streams = server
    texts = {"a": "one", "b": "two", "c": "one"}
    for key in texts:
        soundfile.write(tmp_path / f"{key}.wav", np.full(4000, 0.25), 8000)
    (tmp_path / "text").write_text("".join(f"{key} {text}\n" for key, text in texts.items()))
    (tmp_path / "wav.scp").write_text("".join(f"{key} {tmp_path}/{key}.wav\n" for key in texts))

    done = preloaded.run(
        [ROOT / "lab/benchmark/people.py", "--url", url, "--quiet", "0.5", "1", "--json", tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "WER 33.33 % N=3 C=2 S=1 D=0 I=0" in done.stdout
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["words"], report["quiet"]) == (3, [0.5, 1.0])
    assert report["commit"]

    assert [len(samples) for samples in streams] == [2 * RATE] * 3
    for samples in streams:
        before, after = samples[: RATE // 2 - 200], samples[-RATE + 200 :]
        for quiet in (before, after):
            assert 20 < np.sqrt(np.mean(quiet.astype(float) ** 2)) < 50
        assert samples[RATE // 2 : RATE].mean() == pytest.approx(8192, rel=0.05)
