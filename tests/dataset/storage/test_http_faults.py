"""Faults of HTTP servers, one a scenario: every object is read right, or the error names the object
and the fault.
"""

import random
import time
from dataclasses import replace
from email.utils import formatdate

import pytest

from tests.support.storage.remote_corpus import assert_nothing_is_left
from tests.support.storage.scripted_server import Answer, Request, scripted
from wenet_uio.dataset.storage import cache, objects
from wenet_uio.dataset.storage.versions import StorageError, Version

DATA = random.Random(0).randbytes(300_000)
TAG = {"ETag": '"one"'}
SIZE = len(DATA)
HALF = SIZE // 2


def right(request: Request, **headers: str) -> Answer:
    """The answer of a server without faults."""
    if request.start is None:
        return Answer(200, TAG | headers, DATA)
    part = DATA[request.start : request.end]
    content_range = f"bytes {request.start}-{request.start + len(part) - 1}/{SIZE}"
    return Answer(206, TAG | {"Content-Range": content_range} | headers, part)


def part_of(request: Request, first: int, last: int, **changes) -> Answer:
    """An answer that holds other bytes than those that were asked for."""
    return replace(
        Answer(206, TAG | {"Content-Range": f"bytes {first}-{last - 1}/{SIZE}"}, DATA[first:last]),
        **changes,
    )


def chunked(data: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(
        b"%x\r\n%s\r\n" % (len(data[at : at + 4000]), data[at : at + 4000])
        for at in range(0, len(data), 4000)
    )
    return b'HTTP/1.1 200 OK\r\nETag: "one"\r\nTransfer-Encoding: chunked\r\n\r\n' + body + end


class Limiter:
    """Refuses all requests until the time that it tells with the first."""

    def __init__(self, seconds: int, as_date: bool = False) -> None:
        self.seconds, self.as_date, self.until = seconds, as_date, None

    def __call__(self, request: Request) -> Answer:
        self.until = self.until or time.time() + self.seconds
        if request.method == "HEAD" or time.time() >= self.until:
            return right(request)
        told = formatdate(self.until + 1, usegmt=True) if self.as_date else str(self.seconds)
        return Answer(429, {"Retry-After": told})


def once(answer):
    """The fault occurs at the first GET; it is an Answer, or a function of the request."""
    return lambda request: (
        _faulty(answer, request)
        if (request.method, request.number) == ("GET", 0)
        else right(request)
    )


def at_get(answer):
    """The fault occurs at every GET."""
    return lambda request: _faulty(answer, request) if request.method == "GET" else right(request)


def at_head(answer):
    """The fault occurs at every HEAD."""
    return lambda request: _faulty(answer, request) if request.method == "HEAD" else right(request)


def always(answer):
    return lambda request: _faulty(answer, request)


def _faulty(answer, request: Request) -> Answer:
    return answer(request) if callable(answer) else answer


def redirected(location: str, status: int = 302):
    return lambda request: (
        right(request) if request.path == "/b.tar" else Answer(status, {"Location": location})
    )


READ = {
    "500 once": once(Answer(500)),
    "502 once": once(Answer(502, body=b"<html>bad gateway</html>")),
    "503 once, with Retry-After that is no time": once(Answer(503, {"Retry-After": "soon"})),
    "504 once": once(Answer(504)),
    "408 once": once(Answer(408)),
    "425 once": once(Answer(425)),
    "429 with Retry-After in seconds": Limiter(1),
    "429 with Retry-After as a date": Limiter(1, as_date=True),
    "reset before the answer": once(Answer(raw=b"", end="reset")),
    "reset in the body": once(
        lambda request: replace(right(request), body=DATA[:HALF], length=SIZE, end="reset")
    ),
    "closed before the answer": once(Answer(raw=b"")),
    "closed in the head": once(Answer(raw=b"HTTP/1.1 200 OK\r\nConte")),
    "no HTTP": once(Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n")),
    "a head of a megabyte": once(Answer(raw=b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000)),
    "hang before the answer": once(Answer(raw=b"", end="hang")),
    "hang in the body": once(
        lambda request: replace(right(request), body=DATA[:HALF], length=SIZE, end="hang")
    ),
    "a body cut short": once(
        lambda request: replace(right(request), body=DATA[:HALF], length=SIZE)
    ),
    "a body cut short, with its own length": once(
        lambda request: replace(right(request), body=DATA[:HALF])
    ),
    "a length that is too large": once(lambda request: replace(right(request), length=SIZE + 1000)),
    "a body longer than its length": at_get(
        lambda request: replace(
            right(request), body=right(request).body + b"more", length=len(right(request).body)
        )
    ),
    "no length": at_get(lambda request: replace(right(request), length=None)),
    "no length in the HEAD": at_head(lambda request: replace(right(request), length=None)),
    "chunked": at_get(lambda request: Answer(raw=chunked(DATA))),
    "chunked and cut": once(Answer(raw=chunked(DATA[:HALF], end=b""))),
    "chunked and damaged": once(Answer(raw=chunked(DATA[:HALF], end=b"xyz\r\n"))),
    "HEAD is not allowed": at_head(Answer(405)),
    "HEAD is forbidden by the signature": at_head(Answer(403)),
    "HEAD answers 204": at_head(Answer(204)),
    "ranges are ignored": always(Answer(200, TAG, DATA)),
    "a range of other bytes, once": lambda request: (
        part_of(request, 0, HALF) if request.start and request.number == 1 else _short_once(request)
    ),
    "parts that are shorter than asked": lambda request: (
        part_of(request, request.start, min(request.start + 90_000, request.end or SIZE))
        if request.start
        else _short_once(request)
    ),
    "redirect": redirected("/b.tar"),
    "redirect with 307 to a relative path": redirected("b.tar", 307),
    "redirect with 308": redirected("/b.tar", 308),
    "weak entity tag": always(lambda request: right(request, ETag='W/"one"')),
    "no entity tag": always(
        lambda request: replace(right(request), headers={**right(request).headers, "ETag": ""})
    ),
    "an encoding that is none": always(
        lambda request: right(request, **{"Content-Encoding": "identity"})
    ),
}


def _short_once(request: Request) -> Answer:
    """A body that is cut short, so that the client asks for the rest; the rest is right."""
    if request.method == "HEAD" or request.start:
        return right(request)
    return replace(right(request), body=DATA[:HALF], length=SIZE)


REFUSED = {
    "404": (always(Answer(404)), "HTTP 404"),
    "410": (at_get(Answer(410)), "HTTP 410"),
    "401": (always(Answer(401)), "HTTP 401"),
    "403": (always(Answer(403)), "HTTP 403"),
    "400": (at_get(Answer(400)), "HTTP 400"),
    "416 although the object has bytes": (
        at_get(Answer(416, {"Content-Range": "bytes */9"})),
        "HTTP 416",
    ),
    "204 without a body": (at_get(Answer(204, length=None)), "HTTP 204"),
    "304 without a body": (at_get(Answer(304, TAG, length=None)), "HTTP 304"),
    "300 with choices": (at_get(Answer(300, body=b"a or b")), "HTTP 300"),
    "redirect without a target": (always(Answer(302)), "HTTP 302"),
    "redirect in a circle": (always(Answer(302, {"Location": "/a.tar"})), "30 redirects"),
    "redirect to a file": (
        always(Answer(302, {"Location": "file:///etc/passwd"})),
        "No connection adapters",
    ),
    "redirect to no host": (
        always(Answer(302, {"Location": "http://[::1/a.tar"})),
        "Invalid IPv6 URL",
    ),
    "429 with a Retry-After beyond the deadline": (
        at_get(Answer(429, {"Retry-After": "3600"})),
        "Retry-After 3600 s",
    ),
    "503 with an endless Retry-After": (
        at_get(Answer(503, {"Retry-After": "9" * 5000})),
        "Retry-After inf",
    ),
    "500 for ever": (at_get(Answer(500)), "WENET_UIO_DEADLINE.*HTTP 500"),
    "always cut at the same byte": (
        at_get(
            lambda request: replace(
                right(request), body=DATA[request.start or 0 : HALF], length=SIZE
            )
        ),
        "WENET_UIO_DEADLINE",
    ),
    "gzip although it was not asked for": (
        at_get(lambda request: right(request, **{"Content-Encoding": "gzip"})),
        "gzip",
    ),
    "a size that differs from HEAD's": (
        at_get(Answer(200, TAG, DATA[:HALF])),
        "300000 bytes when indexed, 150000 now",
    ),
    "a range of other bytes, for ever": (
        lambda request: part_of(request, 0, HALF) if request.start else _short_once(request),
        "asked for bytes 150000-, but Content-Range is 'bytes 0-149999/300000'|asked for bytes "
        "150000-299999",
    ),
    "a part without Content-Range": (
        lambda request: Answer(206, TAG, DATA[HALF:]) if request.start else _short_once(request),
        "but Content-Range is ''|150000 now",
    ),
    "an entity tag that changes in the middle": (
        lambda request: (
            right(request, ETag=f'"{request.number}"') if request.start else _short_once(request)
        ),
        "changed since it was indexed",
    ),
    "a total that changes in the middle": (
        lambda request: (
            replace(
                right(request),
                headers={"Content-Range": f"bytes {request.start}-{SIZE - 1}/{SIZE + 1}"},
            )
            if request.start
            else _short_once(request)
        ),
        "changed: 300000 bytes when indexed, 300001 now",
    ),
    "bytes that come one by one": (
        at_get(lambda request: replace(right(request), pause=0.05)),
        "WENET_UIO_DEADLINE",
    ),
    "another digest than the store tells": (
        always(lambda request: right(request, **{"Content-MD5": "AAAAAAAAAAAAAAAAAAAAAA=="})),
        "MD5",
    ),
}


@pytest.mark.parametrize("scenario", READ)
def test_an_object_is_read_right_in_spite_of(scenario, cache_folder, monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "4")  # a silent connection is given up after 0.4 s
    script = READ[scenario]
    with scripted(script) as server:
        assert objects.read_bytes(f"{server.url}/a.tar") == DATA
        gets = sum(request.method == "GET" for request in server.seen)
        if isinstance(script, Limiter):
            assert gets == 2  # it was not asked again before the time that it told
        found = cache.current_version(f"{server.url}/a.tar")
        assert objects.read_range(f"{server.url}/a.tar", 1000, HALF, found) == DATA[1000:HALF]
    assert_nothing_is_left(cache_folder)


@pytest.mark.parametrize("scenario", REFUSED)
def test_the_error_names_the_object_and(scenario, cache_folder, monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    script, message = REFUSED[scenario]
    with scripted(script) as server:
        with pytest.raises(OSError, match=message) as error:
            objects.read_bytes(f"{server.url}/a.tar?signature=secret")
        assert "/a.tar?…" in str(error.value)
        assert "secret" not in str(error.value)
    assert list(cache_folder.rglob("*.tar")) == []
    assert_nothing_is_left(cache_folder)


def test_the_packed_object_of_a_server_that_names_its_encoding_is_read(cache_folder):
    with scripted(
        always(lambda request: right(request, **{"Content-Encoding": "x-gzip"}))
    ) as server:
        assert objects.read_range(f"{server.url}/a.tar.gz?x=1", 0, None, Version(None)) == DATA


def test_an_url_that_cannot_be_requested_is_refused_at_once():
    for url in ("http://", "http://me:secret@[::1/a.tar", "http://.host/a.tar"):
        with pytest.raises(StorageError) as error:
            objects.read_range(url, 0, 10, Version(None))
        assert "secret" not in str(error.value)
