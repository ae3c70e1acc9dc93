import asyncio
import io
import json
import time

import aiohttp
import numpy as np
import openai
import pytest
import soundfile

from tests.api.conftest import TRANSDUCER, bursts, write_model
from tests.support.models.tiny_whisper import tiny, tiny_config
from tests.support.serve.clients import served, speak
from wenet_uio.api.load import load_model
from wenet_uio.api.options import TranscribeOptions
from wenet_uio.api.recogniser import SpeechRecogniser
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.serve.messages import RefusedError
from wenet_uio.serve.metrics import Metrics
from wenet_uio.serve.options import Limits, ServeOptions
from wenet_uio.serve.transcriptions import Transcriptions


def encoded(samples, kind="WAV", rate=16000):
    """The bytes of an audio file."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind)
    return file.getvalue()


@pytest.fixture(scope="session")
def talk(speech):
    return encoded(speech)


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_the_openai_package_gets_the_text_of_the_python_interface(client, recogniser, talk):
    for kind in ("WAV", "FLAC", "MP3", "OGG"):
        content = encoded(bursts(), kind)
        expected = recogniser.transcribe(content).text
        assert (
            client.audio.transcriptions.create(model="any", file=(f"talk.{kind}", content)).text
            == expected
            != ""
        )


def test_every_response_format_equals_that_of_the_python_interface(client, recogniser, talk):
    expected = recogniser.transcribe(talk)

    def answer(kind):
        return client.audio.transcriptions.create(
            model="any", file=("talk.wav", talk), response_format=kind
        )

    assert answer("json").text == expected.text
    assert answer("text") == f"{expected.text}\n"
    assert answer("srt") == f"{expected.to_srt()}\n"
    assert answer("vtt") == f"{expected.to_vtt()}\n"


def test_verbose_json_has_segments_and_words_with_times(client, recogniser, talk):
    expected = recogniser.transcribe(talk)
    found = client.audio.transcriptions.create(
        model="any",
        file=("talk.wav", talk),
        response_format="verbose_json",
        language="en",
        timestamp_granularities=["word", "segment"],
    )
    assert (found.text, found.duration, found.language) == (expected.text, 6.0, "en")
    assert [each.text for each in found.segments] == [each.text for each in expected.segments]
    symbols = recogniser.recogniser.tokenizer.symbols
    for mine, other in zip(found.segments, expected.segments, strict=True):
        assert (mine.start, mine.end) == pytest.approx((other.start, other.end), abs=1e-3)
        assert mine.tokens == [symbols[token.text] for token in other.tokens]
        assert mine.avg_logprob < 0
    words = [(word.word, word.start, word.end, word.confidence) for word in found.words]
    assert words == [tuple(word.to_dict().values()) for word in expected.words]


def test_the_prompt_and_the_own_field_are_hot_words(recogniser, talk):
    mode = "ctc_prefix_beam_search"
    with served(
        recogniser, ServeOptions(transcribing={"mode": mode, "hot_word_score": 20.0})
    ) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        plain = recogniser.transcribe(talk, mode=mode).text
        hot = recogniser.transcribe(
            talk, mode=mode, hot_words=["hag", "g h"], hot_word_score=20.0
        ).text
        given = client.audio.transcriptions.create(
            model="any", file=("t.wav", talk), prompt="hag, g h; Überraschung."
        )
        own = client.audio.transcriptions.create(
            model="any", file=("t.wav", talk), extra_body={"hot_words": "hag\ng h\n\n"}
        )
        unknown = client.audio.transcriptions.create(
            model="any", file=("t.wav", talk), prompt="Überraschung"
        )
        prose = client.audio.transcriptions.create(
            model="any", file=("t.wav", talk), prompt="a b " * 100
        )
    assert given.text == own.text == hot != plain
    assert unknown.text == plain == prose.text
    assert prose.warnings == ["prompt: left out 1 phrases of more than 100 characters"]
    assert given.warnings == ["the units cannot spell: Überraschung"] == unknown.warnings


def test_a_transducer_takes_the_hot_words_of_a_request(tmp_path):
    recogniser = load_model(write_model(tmp_path, TRANSDUCER), device="cpu")
    server = Transcriptions(recogniser, TranscribeOptions(), Limits(), Metrics())
    try:
        options, warnings = server._options_of({"hot_words": "abc"})
    finally:
        server.close()
    assert (list(options.hot_words), warnings) == (["abc"], [])


def test_silence_and_a_very_short_recording_have_an_empty_text(client):
    for samples in (np.zeros(32000, np.int16), np.zeros(10, np.int16)):
        assert (
            client.audio.transcriptions.create(model="any", file=("t.wav", encoded(samples))).text
            == ""
        )


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        (b"this is no audio" * 100, {}, "cannot be"),
        (b"", {}, "file: missing or empty"),
        (encoded(np.zeros(0, np.int16)), {}, "no samples"),
        (None, {"response_format": "docx"}, "response_format: expected json, text"),
        (None, {"extra_body": {"hot_words": "x\n" * 1001}}, "at most 1000 phrases"),
        (None, {"prompt": "x" * 70_000}, "prompt: at most 65536 bytes"),
        (None, {"stream": True}, "stream: not supported here"),
    ],
)
def test_a_wrong_request_is_an_error_of_the_openai_package_with_the_reason(
    client, talk, file, fields, message
):
    with pytest.raises(openai.APIStatusError) as raised:
        client.audio.transcriptions.create(
            model="any", file=("t.wav", talk if file is None else file), **fields
        )
    assert raised.value.status_code in (400, 413)
    if message != "cannot be":
        assert message in raised.value.body["message"]


def post(url, **arguments):
    """(status, answer) of a POST request."""

    async def request():
        async with aiohttp.ClientSession() as client, client.post(url, **arguments) as answer:
            return answer.status, await answer.json()

    return asyncio.run(request())


@pytest.mark.parametrize(
    "arguments",
    [
        {"json": {"file": "talk.wav"}},
        {"data": b"RIFF"},
        {"data": b"RIFF", "headers": {"Content-Type": "multipart/form-data"}},
        {"data": b"--x\r\n\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {
            "data": b"--x\r\nContent-Disposition: form-data\r\n\r\n",
            "headers": {"Content-Type": "multipart/mixed; boundary=x"},
        },
        {"data": {"model": "no file"}},
    ],
)
def test_a_body_that_is_no_form_with_a_file_is_refused(server, arguments):
    status, answer = post(f"{server.url}/v1/audio/transcriptions", **arguments)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert answer["error"]["message"]


def test_limits_of_size_length_and_number_are_refused_with_their_status(recogniser, talk):
    limits = Limits(max_upload_bytes=250_000, max_seconds=6.5, max_uploads=1, idle_seconds=2)
    with served(recogniser, ServeOptions(limits=limits)) as server:
        url = f"{server.url}/v1/audio/transcriptions"
        assert post(url, data={"file": io.BytesIO(talk)})[0] == 200
        assert post(url, data={"file": io.BytesIO(bytes(250_001))})[0] == 413
        status, answer = post(
            url, data={"file": io.BytesIO(encoded(np.zeros(7 * 16000, np.int16), "FLAC"))}
        )
        assert (status, answer["error"]["message"]) == (413, "a recording may have 6.5 s of audio")

        async def slow_and_another():
            async def slowly():
                yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'
                await asyncio.sleep(20)

            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            async with aiohttp.ClientSession() as client:
                slow = asyncio.create_task(client.post(url, data=slowly(), headers=headers))
                while (
                    "wenet_uio_uploads 1.0"
                    not in await (await client.get(f"{server.url}/metrics")).text()
                ):
                    await asyncio.sleep(0.01)
                async with client.post(url, data={"file": io.BytesIO(talk)}) as answer:
                    busy = answer.status, answer.headers["Retry-After"]
                return busy, (await slow).status

        busy, slow = asyncio.run(slow_and_another())
        assert busy == (503, "5")
        assert slow == 408
        assert post(url, data={"file": io.BytesIO(talk)})[0] == 200


def test_a_vanished_client_is_not_transcribed_to_its_end(recogniser, monkeypatch):
    long = encoded(np.tile((bursts() * 32767).astype(np.int16), 60), "FLAC")
    segments = []

    def slowly(*arguments):
        for each in iterate(*arguments):
            segments.append(each)
            time.sleep(0.3)
            yield each

    iterate = recogniser.iterate
    monkeypatch.setattr(recogniser, "iterate", slowly)
    with served(recogniser, ServeOptions()) as server:

        async def vanish():
            async with aiohttp.ClientSession() as client:
                url = f"{server.url}/v1/audio/transcriptions"
                request = asyncio.create_task(client.post(url, data={"file": io.BytesIO(long)}))
                while not segments:
                    await asyncio.sleep(0.01)
                request.cancel()

        asyncio.run(asyncio.wait_for(vanish(), 60))
        until = time.monotonic() + 60
        while server.server._transcriptions.busy and time.monotonic() < until:
            time.sleep(0.05)
        assert server.server._transcriptions.busy == 0
    assert len(segments) < 60


def test_a_recording_and_a_stream_at_once_do_not_disturb_each_other(
    server, recogniser, speech, talk
):
    expected = recogniser.transcribe(talk).text

    async def both():
        async with aiohttp.ClientSession() as client:
            url = f"{server.url}/v1/audio/transcriptions"
            answers = [client.post(url, data={"file": io.BytesIO(talk)}) for _ in range(3)]
            stream, *posted = await asyncio.gather(
                speak(server.socket_url, speech, packet=1600), *answers
            )
            return stream, [await answer.json() for answer in posted]

    stream, posted = asyncio.run(both())
    assert posted == [{"text": expected}] * 3
    assert json.loads(stream[-2]["nbest"])[0]["sentence"]


def test_a_whisper_transcribes_in_the_language_of_the_request(tmp_path):
    recogniser = SpeechRecogniser(Recogniser(tiny_config(), None, tiny()), tmp_path, "cpu")
    server = Transcriptions(
        recogniser, TranscribeOptions(decoding={"language": None}), Limits(), Metrics()
    )
    try:
        for fields, expected in (({"language": "zh"}, "zh"), ({}, None), ({"language": ""}, None)):
            options, warnings = server._options_of(fields)
            assert (options.decoding["language"], warnings) == (expected, [])
        with pytest.raises(RefusedError, match=r"^language 'fr': this model knows en, zh$"):
            server._options_of({"language": "fr"})
    finally:
        server.close()
