"""Several tokens, and what each may use."""

import asyncio
import io
import re
import time
from contextlib import suppress

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.addons.serve.test_transcriptions import encoded
from tests.support.serve.clients import START, sentences, served, speak
from tests.support.serve.strangers import PATH
from wenet_uio.addons.serve.command import read_token
from wenet_uio.addons.serve.messages import LimitError
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.tokens import (
    WRONG_TOKEN_SECONDS,
    Account,
    TokenLimits,
    Tokens,
    parse_tokens,
)

FILE = """
# tokens of the page, of the robots
secret
open sesame  name=page streams=2
s3cret=      name=robots seconds_a_minute=90.5 streams=1
"""


def test_a_file_has_a_token_a_line_with_its_limits():
    assert parse_tokens(FILE, "tokens") == [
        TokenLimits("secret", "token3"),
        TokenLimits("open sesame", "page", 2),
        TokenLimits("s3cret=", "robots", 1, 90.5),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tokens: the token is empty"),
        ("# secret\n\n", "tokens: the token is empty"),
        ("a\na", "tokens: a token is there twice"),
        ("a name=x\nb name=x", "tokens: a name is there twice"),
        ("a name=token2\nb", "tokens: a name is there twice"),
        ("a\nb stream=3", "tokens:2: stream: expected name, streams or seconds_a_minute"),
        ("a streams=0", "tokens:1: streams: expected 1 or more, found '0'"),
        ("a streams=many", "tokens:1: streams: expected 1 or more"),
        ("a streams=" + "9" * 5000, "tokens:1: streams: expected 1 or more"),
        ("a seconds_a_minute=0", "tokens:1: seconds_a_minute: expected above 0, found '0'"),
        ("a seconds_a_minute=nan", "tokens:1: seconds_a_minute: expected above 0"),
        ("a seconds_a_minute=-1", "tokens:1: seconds_a_minute: expected above 0"),
        ("a name=", "tokens:1: name: expected letters"),
        ('a name=x"y', "tokens:1: name: expected letters"),
    ],
)
def test_a_wrong_line_is_named_and_its_token_is_not(text, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)) as raised:
        parse_tokens(text, "tokens")
    assert len(str(raised.value)) < 200


def test_a_token_file_of_any_editor_is_read_and_one_that_is_no_text_is_named(tmp_path):
    file = tmp_path / "tokens"
    file.write_bytes(b"\xef\xbb\xbfsecret\r\nother name=page\r\n")
    assert parse_tokens(read_token(str(file)), "tokens") == [
        TokenLimits("secret", "token1"),
        TokenLimits("other", "page"),
    ]
    file.write_bytes(b"secret\xff")
    with pytest.raises(ValueError, match=f"{file}: expected a text in UTF-8"):
        read_token(str(file))


def test_a_token_is_not_shown_by_its_limits():
    assert "secret" not in repr(parse_tokens(FILE, "tokens")[0])


def test_every_token_has_its_own_account_and_a_wrong_one_has_none():
    tokens = Tokens(parse_tokens(FILE, "tokens"))
    for token, name in (("secret", "token3"), ("open sesame", "page"), ("s3cret=", "robots")):
        assert tokens.account(token).limits.name == name
    for token in (None, "", "open", "SECRET", "secret ", "# tokens", "\ud800"):
        with pytest.raises(PermissionError, match="the token is missing or wrong"):
            tokens.account(token)
    assert Tokens([]).account("any").limits == TokenLimits()


class Clock:
    def __init__(self):
        self.time = 1000.0

    def __call__(self):
        return self.time


@given(
    rate=st.floats(1, 1000),
    steps=st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 10)), max_size=30),
)
def test_a_token_gets_its_seconds_of_each_minute_and_one_minute_in_advance(rate, steps):
    """A client that waits when it is told to sends at most one message more than its share."""
    clock = Clock()
    account = Account(TokenLimits(seconds_a_minute=rate), clock)
    start, sent, last = clock.time, 0.0, 0.0
    for pause, seconds in steps:
        clock.time += max(pause, account.wait_seconds)
        assert account.wait_seconds == pytest.approx(0, abs=1e-6)
        account.spend(seconds)
        sent, last = sent + seconds, seconds
        assert sent - last <= rate * (1 + (clock.time - start) / 60) + 1e-6


def test_a_long_recording_is_paid_for_by_the_minutes_after_it():
    clock = Clock()
    account = Account(TokenLimits(seconds_a_minute=60), clock)
    account.check_seconds()
    account.spend(600)
    assert account.wait_seconds == pytest.approx(540)
    with pytest.raises(LimitError, match="60 s of audio a minute; try again in 540 s"):
        account.check_seconds(60)
    clock.time += 541
    account.check_seconds()


def test_other_tokens_keep_the_accounts_of_those_that_stay():
    tokens = Tokens(parse_tokens("a streams=1\nb", "tokens"))
    account = tokens.account("a")
    with account.stream():
        tokens.replace(parse_tokens("a streams=2\nc", "tokens"))
        assert tokens.account("a") is account
        with account.stream(), pytest.raises(LimitError, match="2 streams of this token"):
            account.stream().__enter__()
    with pytest.raises(PermissionError):
        tokens.account("b")
    assert tokens.account("c").limits.name == "token2"


def options(tokens, **limits):
    return ServeOptions(endpoints={}, token=tokens, limits=Limits(**limits))


async def post(url, content, token):
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(url + PATH, data={"file": io.BytesIO(content)}, headers=headers) as answer,
    ):
        return answer.status, answer.headers.get("Retry-After"), await answer.text()


def test_a_token_with_all_its_streams_gets_no_further_one_and_others_do(recogniser, speech):
    async def streams():
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(server.socket_url) as first,
        ):
            await first.send_json(START | {"token": "one"})
            await first.receive_json()
            refused = await speak(server.socket_url, speech, START | {"token": "one"})
            other = await speak(server.socket_url, speech, START | {"token": "two"})
        while True:  # the place is free soon after the stream has ended
            again = await speak(server.socket_url, speech, START | {"token": "one"})
            if again[0]["status"] == "ok":
                return refused, other, again

    with served(recogniser, options("one streams=1\ntwo")) as server:
        refused, other, again = asyncio.run(streams())
    message = "1 streams of this token are open; try later"
    assert refused == [{"status": "failed", "message": message, "code": "token_streams"}]
    assert sentences(other) == sentences(again) != [""]


def test_a_stream_beyond_the_seconds_of_its_token_is_slowed_down_and_loses_nothing(
    recogniser, speech
):
    """Of 6 s of audio, 2 s are free; each further second costs 0.5 s."""
    with served(recogniser, options("slow seconds_a_minute=120\nfree")) as server:
        free = asyncio.run(speak(server.socket_url, speech, START | {"token": "free"}))
        account = vars(server.server)["_tokens"].account("slow")
        account.spend(118)
        begin = time.monotonic()
        slow = asyncio.run(speak(server.socket_url, speech, START | {"token": "slow"}))
        assert time.monotonic() - begin >= 1.5
    assert sentences(slow) == sentences(free) != [""]


def test_a_stream_that_would_have_to_wait_for_too_long_is_refused_with_the_reason(
    recogniser, speech
):
    with served(recogniser, options("one seconds_a_minute=2", idle_seconds=0.5)) as server:
        received = asyncio.run(speak(server.socket_url, speech, START | {"token": "one"}))
    assert "this token may send 2 s of audio a minute" in received[-1]["message"]


def test_a_recording_of_a_token_without_seconds_is_refused_with_429(recogniser, speech):
    with served(recogniser, options("one seconds_a_minute=2\ntwo")) as server:
        first, second, other = (
            asyncio.run(post(server.url, encoded(speech), token)) for token in ("one", "one", "two")
        )
    assert first[0] == other[0] == 200
    assert second[:2] == (429, "5")
    assert "this token may send 2 s of audio a minute; try again in" in second[2]


def test_wrong_tokens_are_slowed_down_and_counted_at_each_door_and_right_ones_are_not(
    recogniser, monkeypatch
):
    slept = []
    sleep = asyncio.sleep

    async def counted(seconds, *rest):
        slept.extend([seconds] * (seconds == WRONG_TOKEN_SECONDS))
        await sleep(min(seconds, 0.05), *rest)

    async def statuses(server, token):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession(headers=headers) as client:
            async with client.get(f"{server.url}/v1/models") as answer:
                yield answer.status
            async with client.post(server.url + PATH, data={"file": io.BytesIO(b"a")}) as answer:
                yield answer.status
            async with client.ws_connect(server.socket_url) as socket:
                await socket.send_json(START)
                yield (await socket.receive_json())["status"]
            try:
                async with client.ws_connect(f"{server.socket_url}/v1/realtime"):
                    yield 101
            except aiohttp.WSServerHandshakeError as error:
                yield error.status

    async def all_doors(server, token):
        return [status async for status in statuses(server, token)]

    with served(recogniser, ServeOptions(token="secret")) as server:
        refused = vars(server.server)["_metrics"].refused
        monkeypatch.setattr(asyncio, "sleep", counted)
        assert asyncio.run(all_doors(server, "secret")) == [200, 400, "ok", 101]
        assert asyncio.run(all_doors(server, "")) == [401, 401, "failed", 401]
        assert slept == []
        assert refused.labels("wrong_token")._value.get() == 0
        assert asyncio.run(all_doors(server, "guess")) == [401, 401, "failed", 401]
        assert slept == [WRONG_TOKEN_SECONDS] * 4
        assert refused.labels("wrong_token")._value.get() == 4


def test_connections_with_wrong_tokens_give_way_while_they_wait(recogniser):
    options = ServeOptions(token="secret", limits=Limits(max_connections=10))

    async def guess(server):
        headers = {"Authorization": "Bearer guess"}
        async with aiohttp.ClientSession(headers=headers) as client:
            with suppress(aiohttp.ClientError):
                async with client.get(f"{server.url}/v1/models") as answer:
                    assert answer.status == 401

    async def crowd(server):
        guesses = [asyncio.create_task(guess(server)) for _ in range(40)]
        await asyncio.sleep(0.3)
        headers = {"Authorization": "Bearer secret"}
        async with (
            aiohttp.ClientSession(headers=headers) as client,
            client.get(f"{server.url}/v1/models") as answer,
        ):
            assert answer.status == 200
        await asyncio.gather(*guesses)

    with served(recogniser, options) as server:
        asyncio.run(crowd(server))
