"""What a client sends is neither in the log of the server, nor holds up other clients: a server in
a process of its own, and clients that write to plain sockets.
"""

import json
import socket
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

from tests.addons.listen.conftest import write_model
from tests.addons.serve.test_transcriptions import encoded as wav
from tests.support.serve.processes import server_process

SECRET = b"Anna-lives-at-14-Oak-Street"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
DISPOSITION = b'Content-Disposition: form-data; name="file"\r\n\r\n'


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with server_process(write_model(folder / "bursts")) as found:
        yield found


def connect(url):
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def post(body, boundary=b"x", subtype=b"form-data"):
    """The bytes of a request with a form."""
    return (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: multipart/%s; boundary=%s\r\nContent-Length: %d\r\n\r\n%s"
        % (subtype, boundary, len(body), body)
    )


def answer_to(url, request):
    """Head and body of the answer."""
    with connect(url) as raw:
        threading.Thread(target=_send, args=(raw, request), daemon=True).start()
        received = b""
        while piece := raw.recv(1 << 16):
            received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        return head, body


def _send(raw, request):
    with suppress(OSError):  # the server has answered, and reads no more
        raw.sendall(request)


FORMS = {
    "a line without an end": SECRET * 40_000,
    "a header without an end": b"--x\r\n" + SECRET * 1000,
    "a header of nothing but a name": b"--x\r\n" + SECRET + b"\r\n\r\nabc\r\n--x--\r\n",
    "a header with a control character": b"--x\r\nA: \0" + SECRET + b"\r\n\r\nabc\r\n--x--\r\n",
    "300 headers": b"--x\r\n" + b"A: %s\r\n" % SECRET * 300 + b"\r\nabc\r\n--x--\r\n",
    "a disposition that is none": b"--x\r\nContent-Disposition: ;;%s\r\n\r\nabc\r\n--x--\r\n"
    % SECRET,
    "an unknown charset": b"--x\r\nContent-Disposition: form-data; name*=%s''a\r\n\r\nb\r\n--x--\r\n"
    % SECRET,
    "a default charset that is none": b'--x\r\nContent-Disposition: form-data; name="_charset_"'
    b"\r\n\r\n%s\r\n--x--\r\n" % (SECRET * 2),
    "a form within": b"--x\r\nContent-Type: multipart/mixed\r\n\r\n%s\r\n--x--\r\n" % SECRET,
    "no boundary": b"abc" + SECRET,
    "no end": b"--x\r\n" + DISPOSITION + SECRET,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_that_cannot_be_read_is_refused_and_is_not_in_the_log(running, form):
    head, body = answer_to(running.url, post(form))
    assert head.startswith(b"HTTP/1.1 400 "), (head, body)
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert "\n" not in json.loads(body)["error"]["message"]
    assert "Oak-Street" not in "".join(running.log)
    assert "Traceback" not in "".join(running.log)


PREAMBLES = {
    "empty lines": b"\n" * 9_000_000,
    "lines": b"abcdefg\r\n" * 1_000_000,
    "boundaries of another form": b"--y\r\n" * 1_800_000,
    "parts without a name": b"--x\r\n\r\n\r\n" * 1_000_000,
    "headers": (b"--x\r\n" + b"A: b\r\n" * 100 + b"\r\na\r\n") * 14_000,
    "semicolons": (b"--x\r\nContent-Disposition: form-data" + b";" * 8000 + b"\r\n\r\na\r\n")
    * 1100,
}


@pytest.mark.parametrize("body", PREAMBLES.values(), ids=PREAMBLES)
def test_a_form_of_megabytes_of_lines_is_refused_while_others_are_answered(running, body):
    """The event loop would answer nobody while it parses what has arrived."""
    refusals = []
    request = post(body)
    client = threading.Thread(target=lambda: refusals.append(answer_to(running.url, request)))
    client.start()
    waits = []
    while client.is_alive():
        start = time.monotonic()
        head, _ = answer_to(running.url, HEALTH)
        waits.append(time.monotonic() - start)
        assert head.startswith(b"HTTP/1.1 200 ")
    print(f"{len(waits)} answers, the slowest in {max(waits):.2f} s")
    ((head, body),) = refusals
    assert head[:13] in (b"HTTP/1.1 400 ", b"HTTP/1.1 413 "), (head, body)
    assert max(waits) < 5


ODD_REQUESTS = {
    "no HTTP": b"\x16\x03\x01" + SECRET + b"\r\n\r\n",
    "a version of 4300 digits": b"GET / HTTP/" + b"1" * 4300 + b"\r\n\r\n",
    "a length of 4300 digits": b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
    + b"9" * 4300
    + b"\r\n\r\n",
    "a chunk of 4300 digits": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"9" * 4300
    + b"\r\n",
    "an expectation": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: %s\r\n\r\n"
    % SECRET,
    "a port of 4300 digits": b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a:"
    + b"9" * 4300
    + b"\r\n\r\n",
    "no page": b"GET /%s%%0Alog HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % SECRET,
    "a method": b"PURGE / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "health": HEALTH,
}


@pytest.mark.parametrize("request_", ODD_REQUESTS.values(), ids=ODD_REQUESTS)
def test_no_answer_tells_what_the_server_runs(running, request_):
    head, body = answer_to(running.url, request_)
    assert head.startswith(b"HTTP/1."), head
    for name in (b"aiohttp", b"Python", b"Traceback"):
        assert name not in head + body
    assert "Oak-Street" not in "".join(running.log)
    assert "Traceback" not in "".join(running.log)


def test_a_channel_of_4300_digits_is_refused_by_name(running):
    for digits in (4300, 4301, 100_000):
        form = b'--x\r\nContent-Disposition: form-data; name="channel"\r\n\r\n%s\r\n--x\r\n' % (
            b"9" * digits
        )
        form += DISPOSITION + wav(np.zeros(1600, np.int16)) + b"\r\n--x--\r\n"
        head, body = answer_to(running.url, post(form))
        assert head.startswith(b"HTTP/1.1 400 ")
        message = json.loads(body)["error"]["message"]
        assert message.startswith("channel: expected a number from 0, mix or each, found '999")
        assert len(message) < 200
