"""Real utterances and a trained model: the server's texts are those of transcribe.py."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import soundfile
import torch

import wenet_uio
from tests.support.serve.clients import START, openai_client, sentences, served, speak
from tests.support.serve.realtime_clients import transcribe as transcribe_turn
from tests.support.serve.realtime_clients import transcripts
from tests.support.serve.trained_digits import RATE, WORDS, speech
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.bin import transcribe
from wenet_uio.dataset.chain.waveform import resample

UTTERANCES = 36
"""More than the server encodes together."""
FILES = 4
PAIRS = 6
MODE = "attention_rescoring"


@pytest.fixture(scope="module")
def utterances(corpora, tmp_path_factory):
    """{path: what was said}: one to five digits each."""
    folder = tmp_path_factory.mktemp("utterances")
    random = np.random.default_rng(7)
    spoken_words = {}
    for number in range(UTTERANCES):
        digits = tuple(random.integers(10, size=1 + number % 5))
        samples = (
            speech(corpora / "fsdd" / "recordings", digits, random).numpy().round().astype(np.int16)
        )
        path = folder / f"u{number:02d}.wav"
        soundfile.write(path, samples, RATE, subtype="PCM_16")
        spoken_words[path] = " ".join(WORDS[digit] for digit in digits)
    return spoken_words


@pytest.fixture(scope="module")
def recogniser(trained):
    return wenet_uio.load_model(trained, device="cpu")


@pytest.fixture(scope="module")
def home(recogniser):
    with served(recogniser, ServeOptions(endpoints={})) as running:
        yield running


def streamed(url, paths):
    """The texts of all files, which are streamed at once: {key: text}."""

    async def together():
        return await asyncio.gather(
            *[speak(url, soundfile.read(path, dtype="int16")[0], START) for path in paths]
        )

    received = asyncio.run(together())
    return {
        path.stem: " ".join(sentences(messages))
        for path, messages in zip(paths, received, strict=True)
    }


def test_texts_of_many_streams_at_once_are_those_of_recordings(home, recogniser, utterances):
    texts = [result.text for result in recogniser.transcribe(list(utterances), mode=MODE)]
    expected = dict(zip([path.stem for path in utterances], texts, strict=True))
    assert streamed(home.socket_url, list(utterances)) == expected
    # The model has heard eight utterances and is often wrong, but it hears words in most of the
    # others.
    assert sum(len(expected[path.stem].split()) for path in utterances) > UTTERANCES
    assert len(set(expected.values())) > UTTERANCES / 2


@pytest.mark.all
def test_clients_of_openai_and_of_wenet_have_the_same_texts_of_the_same_speech_at_once(
    home, utterances
):
    at_24_khz = [
        resample(torch.from_numpy(soundfile.read(path, dtype="int16")[0]).float(), RATE, 24_000)
        for path in list(utterances)[:PAIRS]
    ]
    samples = [wave.round().clamp(-(2**15), 2**15 - 1).short().numpy() for wave in at_24_khz]
    start = START | {"sample_rate": 24_000}

    async def together():
        realtime = [transcribe_turn(home.url, talk) for talk in samples]
        streams = [speak(home.socket_url, talk, start) for talk in samples]
        return await asyncio.gather(*realtime), await asyncio.gather(*streams)

    events, received = asyncio.run(together())
    texts = [" ".join(sentences(messages)) for messages in received]
    assert [transcripts(session)[0] for session in events] == texts
    assert len(set(texts)) > PAIRS / 2


def test_texts_of_recordings_are_those_of_transcribe(home, trained, utterances, capsys):
    paths = list(utterances)[-FILES:]
    options = ["--model", str(trained), "--device", "cpu", "--format", "json"]
    assert transcribe.main([*options, *map(str, paths)]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [
        " ".join(passage["text"] for passage in recording["passages"]) for recording in printed
    ]
    client = openai_client(home.url)
    found = [client.audio.transcriptions.create(model="any", file=path) for path in paths]
    assert [result.text for result in found] == expected
    assert all(expected)
