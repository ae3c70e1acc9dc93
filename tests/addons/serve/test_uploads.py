"""Forms that are large, odd, slow or compressed."""

import asyncio
import gzip
import io
import socket
import zlib

import aiohttp
import numpy as np
import pytest

from tests.addons.serve.test_connections import address
from tests.addons.serve.test_transcriptions import encoded, post
from tests.audio.test_claimed_size import flac_of_unknown_length
from tests.support.serve.clients import openai_client, served
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.transcriptions import Transcriptions
from wenet_uio.addons.serve.uploads import MOST_FIELD_BYTES, MOST_PARTS

PATH = "/v1/audio/transcriptions"
BOUNDARY = {"Content-Type": "multipart/form-data; boundary=x"}


@pytest.fixture(scope="module")
def talk(speech):
    return encoded(speech[:16000])


def form(talk, *fields):
    """A body with a recording and fields (name, content, headers)."""
    parts = [("file", talk, b""), *fields]
    body = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"\r\n%s\r\n%s\r\n'
        % (name.encode(), headers, content)
        for name, content, headers in parts
    )
    return body + b"--x--\r\n"


def answer_to(server, body, headers=BOUNDARY):
    return post(server.url + PATH, data=body, headers=headers)


def message_to(server, body, headers=BOUNDARY):
    status, answer = answer_to(server, body, headers)
    return status, answer["error"]["message"]


def test_a_form_of_many_parts_is_refused(server, talk):
    few = [("timestamp_granularities[]", b"word", b"")] * (MOST_PARTS - 1)
    assert answer_to(server, form(talk, *few))[0] == 200
    assert message_to(server, form(talk, *few, few[0])) == (413, "a form may have 1200 parts")


@pytest.mark.parametrize("name", ["a", "n" * 2000])
def test_the_sum_of_all_fields_is_limited(server, talk, name):
    size = MOST_FIELD_BYTES // 100
    fields = [
        (f"{name}{number:03}", b"x" * size, b"") for number in range(99 if name == "a" else 10)
    ]
    more = [(f"{name}{number:03}", b"x" * size, b"") for number in range(200)]
    assert answer_to(server, form(talk, *fields))[0] == 200
    status, message = message_to(server, form(talk, *more))
    assert (status, message.partition(": ")[2]) == (413, "all fields may have 262144 bytes")


def test_thousand_hot_words_of_twenty_han_characters_are_no_large_form(server, talk):
    words = ("\u4f60" * 20 + "\n").encode() * 1000
    status, answer = answer_to(server, form(talk, ("hot_words", words, b"")))
    assert status in (200, 400)
    if status == 400:
        assert "hot_words: not used in the mode" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("file", b"RIFF", b"")], "file: found twice; send one recording a request"),
        ([("file[]", b"RIFF", b"")], "file: found twice; send one recording a request"),
        ([("language", b"en", b"")] * 2, "language: found twice; send it once"),
        ([("language", b"en", b""), ("language[]", b"de", b"")], "language: found twice"),
        ([("prompt[]", b"a", b"")] * 2, "prompt: found twice; send it once"),
        ([("own", b"a", b"")] * 2, "own: found twice; send it once"),
        ([("", b"a", b"")], "a part of the form has no name"),
        (
            [("language", b"en", b"Content-Transfer-Encoding: base64\r\n")],
            "language: Content-Transfer-Encoding 'base64'; send it as it is",
        ),
        (
            [("language", b"en", b"Content-Encoding: gzip\r\n")],
            "language: Content-Encoding 'gzip'; send it as it is",
        ),
        ([("language", b"en", b"Content-Type: multipart/mixed; boundary=y\r\n")], "a form within"),
    ],
)
def test_what_comes_twice_or_is_encoded_is_refused_by_name(server, talk, fields, message):
    status, answer = message_to(server, form(talk, *fields))
    assert (status, message in answer) == (400, True), answer


def test_fields_that_may_come_several_times_are_all_used(recogniser, talk, speech):
    mode = "ctc_prefix_beam_search"
    options = {"mode": mode, "hot_word_score": 20.0}
    with served(recogniser, ServeOptions(transcribing=options)) as server:
        talk = encoded(speech)
        words = ["hag", "g h"]
        expected = recogniser.transcribe(talk, hot_words=words, **options).text
        assert expected != recogniser.transcribe(talk, hot_words=words[1:], **options).text
        fields = {
            "brackets": [("hot_words[]", word.encode(), b"") for word in words],
            "names": [("hot_words", word.encode(), b"") for word in words],
            "mixed": [("hot_words[]", b"hag", b""), ("hot_words", b"g h\n", b"")],
        }
        for name, repeated in fields.items():
            assert answer_to(server, form(talk, *repeated)) == (200, {"text": expected}), name
        client = openai_client(server.url)
        granularities = ["word", "segment"]
        found = client.audio.transcriptions.create(
            model="any",
            file=("a.wav", talk),
            response_format="verbose_json",
            timestamp_granularities=granularities,
            extra_body={"hot_words": words},
        )
    assert found.text == expected


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "x-own"])
def test_a_compressed_body_is_refused_and_not_unpacked(server, encoding):
    bomb = {"deflate": zlib.compress, "gzip": gzip.compress}.get(encoding, bytes)(bytes(30_000_000))
    headers = BOUNDARY | {"Content-Encoding": encoding}

    async def request(path):
        async with (
            aiohttp.ClientSession() as client,
            client.post(server.url + path, data=bomb[:1_000_000], headers=headers) as answer,
        ):
            return answer.status, (await answer.json())["error"]["message"]

    status, message = asyncio.run(request(PATH))
    assert (status, message.partition(":")[0]) == (415, f"Content-Encoding {encoding!r}")
    assert asyncio.run(request("/v1/models"))[0] == 415  # before anybody reads the body


def test_a_body_that_is_identical_to_its_encoding_is_taken(server, talk):
    headers = BOUNDARY | {"Content-Encoding": "identity"}
    assert answer_to(server, form(talk), headers)[0] == 200


def test_a_form_that_ends_early_is_refused_or_its_client_is_gone(server, talk):
    body = form(talk)[:-500]
    assert answer_to(server, body)[0] in (200, 400)
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) + 9}\r\n"
    head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    with socket.create_connection(address(server)) as raw:
        raw.sendall(head.encode() + body)
    assert answer_to(server, form(talk))[0] == 200


def test_a_file_of_zeros_or_of_nothing_is_named(server):
    for content, message in ((b"", "file: missing or empty"), (bytes(100), "")):
        status, found = message_to(server, form(content))
        assert status == 400
        assert message in found
    samples = np.zeros(1600, np.int16)
    assert answer_to(server, form(encoded(samples))) == (200, {"text": "", "reason": "no_speech"})
    assert io.BytesIO(encoded(samples)).read(4) == b"RIFF"


@pytest.mark.parametrize(
    ("channels", "seconds", "message"),
    [
        (1, 4.0, ""),
        (2, 1.9, ""),
        (1, 4.1, "a recording may have 4 s of audio"),
        (2, 2.1, "a recording may have 4 s of audio, all channels together"),
        (8, 1.0, "a recording may have 4 s of audio, all channels together"),
        (64, 0.05, ""),
        (65, 0.05, "a recording may have 64 channels, this one has 65"),
        (1024, 0.003, "a recording may have 64 channels, this one has 1024"),
    ],
)
def test_the_audio_of_all_channels_of_a_recording_is_limited(
    recogniser, channels, seconds, message
):
    samples = np.zeros((int(seconds * 16000), channels), np.int16)
    with served(recogniser, ServeOptions(limits=Limits(max_seconds=4.0))) as running:
        status, answer = answer_to(running, form(encoded(samples), ("channel", b"each", b"")))
        assert status == (413 if message else 200), answer
        assert not message or answer["error"]["message"] == message


def test_silence_of_unknown_length_is_refused_before_it_is_decoded(recogniser, monkeypatch):
    """10 minutes with a limit of 10 s stand for 10 hours: 2 MB of FLAC."""
    body = form(flac_of_unknown_length(np.zeros((9_600_000, 1), np.int16)))
    decoded = []
    check = Transcriptions._check_length

    def noted(transcriptions, info):
        decoded.append(info.num_samples)
        check(transcriptions, info)

    monkeypatch.setattr(Transcriptions, "_check_length", noted)
    with served(recogniser, ServeOptions(limits=Limits(max_seconds=10.0))) as running:
        status, answer = answer_to(running, body)
    assert (status, answer["error"]["message"]) == (413, "a recording may have 10 s of audio")
    assert 10 * 16000 < decoded[0] < 11 * 16000
