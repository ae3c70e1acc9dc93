import asyncio
import io
import json
import time
from itertools import product

import aiohttp
import numpy as np
import pytest
import soundfile
import torch

from tests.addons.listen.conftest import TRANSDUCER, bursts, write_model
from tests.support.audio.arrays import npy, pth
from tests.support.models.tiny_whisper import SPECIAL, tiny, tiny_config
from tests.support.serve.clients import openai_client, served, speak
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.listen.tracks import parse_channel
from wenet_uio.addons.serve.messages import RefusedError
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.transcriptions import Transcriptions
from wenet_uio.models import build_model
from wenet_uio.search.recogniser import Recogniser


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
    return openai_client(server.url)


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


@pytest.mark.third
@pytest.mark.parametrize("channel", ["", "each", "mix", "0", "1"])
def test_the_channels_of_a_call_are_those_of_the_python_interface(
    client, recogniser, speech, channel
):
    call = encoded(np.stack((speech, np.roll(speech, len(speech) // 6)), axis=1))
    expected = recogniser.transcribe(call, channel=parse_channel(channel) if channel else None)

    def answer(kind):
        return client.audio.transcriptions.create(
            model="any",
            file=("call.wav", call),
            response_format=kind,
            extra_body={"channel": channel},
        )

    assert answer("json").text == expected.text
    assert answer("srt") == f"{expected.to_srt()}\n"
    found = answer("verbose_json").segments
    tracks = [(part.channel, getattr(part, "channel_name", "")) for part in found]
    assert tracks == [tuple(segment.track) for segment in expected.segments]
    assert {name for _, name in tracks} == (
        {""} if channel in {*"01", "mix"} else {"left", "right"}
    )


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
    assert [segment.text for segment in found.segments] == [
        segment.text for segment in expected.segments
    ]
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
        client = openai_client(server.url)
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
    server = Transcriptions(recogniser, ServeOptions(), Metrics())
    try:
        options, remarks = server._request_options({"hot_words": "abc"}, "transcribe")
    finally:
        server.close()
    assert (list(options.hot_words), remarks.warnings) == (["abc"], [])


def test_a_prompt_of_any_number_of_phrases_is_used_as_far_as_it_fits(tmp_path):
    recogniser = load_model(write_model(tmp_path, TRANSDUCER), device="cpu")
    letters = "abcdefgh"
    phrases = ["".join(word) for word in product(letters, repeat=4)][:1500]
    server = Transcriptions(recogniser, ServeOptions(), Metrics())
    try:
        options, remarks = server._request_options(
            {"prompt": ", ".join(phrases), "hot_words": "\n".join(phrases[:2])}, "transcribe"
        )
        assert list(options.hot_words) == phrases[:1000]
        assert remarks.warnings == [
            "prompt: left out 500 phrases beyond the first 1000 phrases and 20000 characters"
        ]
        options, remarks = server._request_options(
            {"prompt": "a b :2.5. cd、ef，ab；cd。\n ef,,"}, "transcribe"
        )
        assert (list(options.hot_words), remarks.warnings) == (["a b :2.5", "cd", "ef", "ab"], [])
        with pytest.raises(RefusedError, match="hot_words: at most 16 different scores, found 18"):
            prompt = ",".join(f"a :{score}" for score in range(17))
            server._request_options({"prompt": prompt, "hot_words": "b"}, "transcribe")
    finally:
        server.close()


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
        (None, {"prompt": "x" * 300_000}, "prompt: all fields may have 262144 bytes"),
    ],
)
def test_a_wrong_request_is_an_error_of_the_openai_package_with_the_reason(
    client, talk, file, fields, message
):
    import openai

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


def test_limits_of_size_and_length_are_refused_with_their_status(recogniser, talk):
    limits = Limits(max_upload_bytes=250_000, max_seconds=6.5)
    with served(recogniser, ServeOptions(limits=limits)) as server:
        url = f"{server.url}/v1/audio/transcriptions"
        assert post(url, data={"file": io.BytesIO(talk)})[0] == 200
        assert post(url, data={"file": io.BytesIO(bytes(250_001))})[0] == 413
        status, answer = post(
            url, data={"file": io.BytesIO(encoded(np.zeros(7 * 16000, np.int16), "FLAC"))}
        )
        assert (status, answer["error"]["message"]) == (413, "a recording may have 6.5 s of audio")


def test_a_recording_that_is_cut_short_has_a_warning(server):
    wav = encoded(np.zeros(16000, np.int16), "WAV")
    for share, expected in ((1.0, 0), (0.6, 1)):
        form = aiohttp.FormData({"response_format": "verbose_json"})
        form.add_field("file", wav[: int(share * len(wav))], filename="a.wav")
        status, answer = post(f"{server.url}/v1/audio/transcriptions", data=form)
        warnings = answer.get("warnings", [])
        assert (status, len(warnings)) == (200, expected)
        assert all(warning.startswith("cut short: the file has ") for warning in warnings)


def test_a_recording_too_many_is_refused_before_it_is_sent_and_taken_later(recogniser, talk, held):
    with served(recogniser, ServeOptions(limits=Limits(max_uploads=1))) as server:

        async def two():
            url = f"{server.url}/v1/audio/transcriptions"
            async with aiohttp.ClientSession() as client:
                first = asyncio.create_task(client.post(url, data={"file": io.BytesIO(talk)}))
                while not server.server._transcriptions.busy:
                    await asyncio.sleep(0.01)
                async with client.post(url, data={"file": io.BytesIO(talk)}) as answer:
                    refused = answer.status, answer.headers["Retry-After"]
                held.set()
                async with client.post(url, data={"file": io.BytesIO(talk)}) as answer:
                    later = answer.status
                return refused, later, (await first).status

        refused, later, first = asyncio.run(two())
    assert refused == (503, "5")
    assert first == 200
    assert later in (200, 503)  # the first one may not be done yet


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (npy(np.zeros(16000, np.int16)), "a.npy"),
        (pth(torch.zeros(1, 16000)), "a.pt"),
        (pth(torch.zeros(1, 1).expand(1 << 15, 1 << 15)), "a.wav"),
    ],
)
def test_arrays_and_tensors_are_refused_unless_they_are_allowed(recogniser, content, name):
    for allow, expected in ((False, 400), (True, 400 if name == "a.wav" else 200)):
        with served(recogniser, ServeOptions(allow_tensors=allow)) as server:
            form = aiohttp.FormData()
            form.add_field("file", content, filename=name)
            status, answer = post(f"{server.url}/v1/audio/transcriptions", data=form)
        assert status == expected
        if not allow:
            assert answer["error"]["message"] == (
                "file: an array or a tensor instead of audio; send wav or flac (--allow_tensors)"
            )


def test_a_model_that_does_not_translate_says_so(client, talk):
    import openai

    with pytest.raises(openai.BadRequestError, match="this model does not translate"):
        client.audio.translations.create(model="any", file=("t.wav", talk))


def test_a_whisper_that_knows_several_languages_translates(tmp_path):
    options = ServeOptions(transcribing={"decoding": {"language": None}})
    for multilingual in (True, False):
        config = tiny_config(
            tokenizer_conf={
                "special_tokens": SPECIAL,
                "is_multilingual": multilingual,
                "num_languages": 2,
            }
        )
        model = build_model(config).eval()
        assert ("translate" in model.prompt_tasks) == multilingual
        recogniser = SpeechRecogniser(Recogniser(config, None, model), tmp_path, "cpu")
        server = Transcriptions(recogniser, options, Metrics())
        try:
            assert server._request_options({}, "translate")[0].decoding["task"] == "translate"
            assert "task" not in server._request_options({}, "transcribe")[0].decoding
        finally:
            server.close()


def test_a_vanished_client_is_not_transcribed_to_its_end(recogniser, monkeypatch):
    long = encoded(np.tile((bursts() * 32767).astype(np.int16), 60), "FLAC")
    segments = []

    def slowly(*arguments):
        for segment in iterate(*arguments):
            segments.append(segment)
            time.sleep(0.3)
            yield segment

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
    options = ServeOptions(transcribing={"decoding": {"language": None}})
    server = Transcriptions(recogniser, options, Metrics())
    try:
        for fields, expected in (({"language": "zh"}, "zh"), ({}, None), ({"language": ""}, None)):
            options, remarks = server._request_options(fields, "transcribe")
            assert (options.decoding["language"], remarks.warnings) == (expected, [])
        with pytest.raises(RefusedError, match=r"^language 'fr': this model knows en, zh$"):
            server._request_options({"language": "fr"}, "transcribe")
    finally:
        server.close()
