"""A server of an export for streams gives clients, alone and together, the texts of the checkpoint."""

from __future__ import annotations

import asyncio
import io
import random

import numpy as np
import pytest
import soundfile

import wenet_uio
from tests.addons.listen.conftest import RATE
from tests.addons.listen.tone_model import tones, write_tone_model
from tests.support.serve.clients import openai_client, sentences, served, speak
from wenet_uio.addons.runtimes.onnx_files import to_onnx
from wenet_uio.addons.runtimes.onnx_graphs import streams_graphs
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.search.recogniser import load_recogniser


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of a model that hears tones, with its export for streams."""
    pytest.importorskip("onnxruntime")
    run = write_tone_model(tmp_path_factory.mktemp("tones") / "model")
    folder = run / "onnx/streams"
    folder.mkdir(parents=True)
    for name, graph in streams_graphs(load_recogniser(run).model.eval(), 23).items():
        (folder / name).write_bytes(to_onnx(graph))
    return run


@pytest.mark.all
def test_clients_of_an_export_hear_what_was_said_and_what_the_checkpoint_hears(run):
    draw = random.Random(1)
    spoken = [
        "".join([*draw.choices("abcd", k=draw.randint(1, 5)), "2"]) * draw.randint(1, 3)
        for _ in range(6)
    ]
    talks = [(tones(f"1{text}1") * 32767).astype(np.int16) for text in spoken]

    async def all_together(url: str) -> list[list[str]]:
        received = await asyncio.gather(*(speak(url, talk) for talk in talks))
        return [[text for text in sentences(messages) if text] for messages in received]

    texts = {}
    for model in (run, run / "onnx", run / "onnx/streams"):
        recogniser = wenet_uio.load_model(model, device="cpu")
        with served(recogniser, ServeOptions()) as home:
            texts[model] = asyncio.run(all_together(home.socket_url))
            client = openai_client(home.url)
            recording = io.BytesIO()
            soundfile.write(recording, talks[0], RATE, format="WAV")
            recording.name = "talk.wav"
            whole = client.audio.transcriptions.create(model="any", file=recording).text
            assert whole.replace(" ", "") == spoken[0].replace("2", "")

    expected = [text.split("2")[:-1] for text in spoken]
    assert texts == dict.fromkeys(texts, expected)
