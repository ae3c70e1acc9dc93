"""The page where something does not work: the microphone, limits, a slow connection, an impatient
person.
"""

from __future__ import annotations

import re
import threading

import pytest
import soundfile

from tests.addons.listen.conftest import RATE
from tests.addons.serve.test_events import slowed
from tests.support.serve.browser import chromium
from tests.support.serve.clients import served
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.audio.decoders import AudioError

CUT = ServeOptions(transcribing={"window": 3.0})
"""A recording of six seconds is cut at its pauses."""
IDLE = "#speak[data-state=idle]"


@pytest.fixture(scope="module")
def recording(speech, tmp_path_factory):
    path = tmp_path_factory.mktemp("speech") / "bursts.wav"
    soundfile.write(path, speech, RATE)
    return path


@pytest.fixture(scope="module")
def browser(recording):
    with chromium(recording) as running:
        yield running


@pytest.fixture
def home(server):
    return server.url


def press(page):
    page.locator("#speak").click()


def test_a_refused_microphone_is_said_and_the_page_is_ready_again(visitor, home):
    page = visitor.visit(home, allowed=())
    press(page)
    page.get_by_role("alert").filter(has_text="The browser refused the microphone.").wait_for()
    assert page.locator(IDLE).count() == 1


@pytest.mark.all
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NotFoundError", "No microphone was found."),
        ("NotReadableError", "Another program may be using it."),
        ("AbortError", "The microphone cannot be used."),
    ],
)
def test_a_missing_or_used_microphone_is_said(visitor, home, name, words):
    thrown = f"throw new DOMException('of this machine', '{name}')"
    script = f"navigator.mediaDevices.getUserMedia = async () => {{ {thrown} }}"
    page = visitor.visit(home, script=script)
    press(page)
    page.get_by_role("alert").filter(has_text=words).wait_for()


def test_a_file_above_the_limit_of_the_server_is_not_sent(visitor, recogniser, recording):
    with served(recogniser, ServeOptions(limits=Limits(max_upload_bytes=150_000))) as small:
        page = visitor.visit(small.url)
        page.locator("#file").set_input_files(str(recording))
        page.wait_for_selector("[data-failed]")
        assert (
            page.locator(".progress").inner_text()
            == "The file has 0.2 MiB; the server takes at most 0.1 MiB."
        )
    assert not [address for address in visitor.addresses if "transcriptions" in address]


def test_the_text_of_a_file_appears_segment_by_segment_with_the_percentage(
    visitor, recogniser, recording, monkeypatch
):
    is_seen = threading.Event()
    slowed(recogniser, monkeypatch, after_first=lambda: is_seen.wait(30))
    with served(recogniser, CUT) as server:
        page = visitor.visit(server.url)
        page.locator("#file").set_input_files(str(recording))
        page.wait_for_selector(".segment")
        shown = page.locator(".segment").count(), page.locator(".progress").inner_text()
        is_seen.set()
        page.locator(".segment").nth(2).wait_for()
        page.get_by_text("0:06").wait_for()
    assert shown[0] == 1
    assert re.fullmatch(r"Recognising, [1-9]\d %", shown[1])


@pytest.mark.all
def test_a_file_that_fails_within_keeps_the_text_so_far_and_says_so(
    visitor, recogniser, recording, monkeypatch
):
    def fail():
        raise AudioError("the file ends early")

    slowed(recogniser, monkeypatch, after_first=fail)
    with served(recogniser, CUT) as server:
        page = visitor.visit(server.url)
        page.locator("#file").set_input_files(str(recording))
        page.wait_for_selector("[data-failed]")
        assert page.locator(".segment").count() == 1
        words = page.locator(".progress").inner_text()
    assert words == "The server cannot read this file. It may be damaged, or it is no recording."


@pytest.mark.all
def test_a_server_that_refuses_more_clients_is_said_to_be_full(visitor, recogniser):
    with served(recogniser, ServeOptions(limits=Limits(max_clients=1))) as small:
        first, second = visitor.visit(small.url), visitor.visit(small.url)
        press(first)
        first.get_by_text("Listening").wait_for()
        press(second)
        second.get_by_role("alert").filter(
            has_text="All places of this server are taken."
        ).wait_for()


@pytest.mark.all
@pytest.mark.parametrize(("seconds", "stops"), [(5, False), (25, True)])
def test_a_connection_that_is_too_slow_is_said_and_ends_the_recording_before_memory_grows(
    visitor, home, seconds, stops
):
    waiting = f"{{ get: () => {seconds} * 2 * new AudioContext().sampleRate }}"
    script = f"Object.defineProperty(WebSocket.prototype, 'bufferedAmount', {waiting})"
    page = visitor.visit(home, script=script)
    press(page)
    words = f"The connection is too slow: {seconds} s of sound wait to be sent."
    page.get_by_role("alert" if stops else "status").filter(has_text=words).wait_for()
    if stops:
        page.wait_for_selector(IDLE)
        assert page.locator("#notices").inner_text() == f"{words} The recording was stopped."
        assert page.locator("#state").inner_text() == "Done."


@pytest.mark.all
def test_a_stop_before_the_server_is_ready_ends_the_recording_as_any_other(visitor, home):
    page = visitor.visit(home)
    press(page)
    page.locator("#speak[data-state=listening]").click()
    page.wait_for_selector(IDLE)
    assert page.locator("#state").inner_text() == "Done."
    assert page.locator("#notices").inner_text() == ""


@pytest.mark.all
def test_a_person_who_does_not_wait_for_the_last_words_keeps_those_so_far(visitor, home):
    deaf = """const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) { if (!String(data).includes('"end"')) send.call(this, data); };"""
    page = visitor.visit(home, script=deaf)
    press(page)
    page.locator(".partial", has_text=re.compile(".")).wait_for()
    press(page)
    page.locator("#speak[data-state=finishing]").click()
    page.wait_for_selector(IDLE)
    assert page.locator("#state").inner_text() == "Stopped."
    assert page.locator(".segment").count() == 1


@pytest.mark.all
def test_silence_of_the_microphone_is_said(visitor, home):
    mute = """const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (wishes) => {
      const stream = await ask(wishes);
      stream.getAudioTracks()[0].enabled = false;
      return stream;
    };"""
    page = visitor.visit(home, script=mute)
    press(page)
    page.get_by_role("status").filter(
        has_text="The microphone gives silence. Is it muted?"
    ).wait_for()
    press(page)
    page.wait_for_selector(IDLE)
    assert page.locator("#notices").inner_text() == ""


@pytest.mark.all
def test_a_microphone_that_is_disconnected_ends_the_recording(visitor, home):
    unplugged = """const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (wishes) => (window.microphone = await ask(wishes));"""
    page = visitor.visit(home, script=unplugged)
    press(page)
    page.locator(".partial", has_text=re.compile(".")).wait_for()
    page.evaluate("microphone.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
    page.wait_for_selector(IDLE)
    assert page.get_by_role("alert").inner_text() == "The microphone was disconnected."


@pytest.mark.all
def test_a_server_that_comes_after_the_page_is_found_by_the_next_start(visitor, home):
    late = """const ask = window.fetch;
    window.fetch = async () => { window.fetch = ask; throw new TypeError("no server yet"); };"""
    page = visitor.visit(home, script=late)
    assert (
        page.get_by_role("alert")
        .inner_text()
        .startswith("The server does not answer at 127.0.0.1:")
    )
    press(page)
    page.locator("#model", has_text="model").wait_for()
    assert page.locator("#notices").inner_text() == ""
