"""The page at / in a real browser, with a file as microphone and a model trained on digits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

import wenet_uio
from tests.support.serve.browser import OTHER_HOST, chromium, words_of
from tests.support.serve.clients import served
from wenet_uio.addons.listen.results import Cue, srt_lines, vtt_lines
from wenet_uio.addons.listen.tracks import parse_channel
from wenet_uio.addons.serve.messages import cue_fields
from wenet_uio.addons.serve.options import ServeOptions

SPOKEN = "three one four two"
IDLE = "#speak[data-state=idle]"


@pytest.fixture(scope="module")
def digits(trained):
    return wenet_uio.load_model(trained, device="cpu")


@pytest.fixture(scope="module")
def browser(trained):
    with chromium(trained / "digits.wav") as running:
        yield running


@pytest.fixture(scope="module")
def home(digits):
    with served(digits, ServeOptions()) as running:
        yield running.url


@pytest.fixture
def recording(trained):
    return trained / "digits.wav"


def press(page):
    page.locator("#speak").click()


def record(page):
    """Speak the digits into the microphone, and wait for the last words."""
    press(page)
    await_words(page, "two")
    press(page)
    page.wait_for_selector(IDLE)


def await_words(page, words="."):
    """Wait until the text of the newest recording, final or not, has these words."""
    page.locator(".text, .partial", has_text=re.compile(words)).first.wait_for()


def choose(page, *paths):
    page.locator("#file").set_input_files([str(path) for path in paths])


def downloaded(page, name):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).first.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_text(encoding="utf-8")


def cues_of(transcript):
    """Subtitles with the times of the server's answer."""
    return [Cue(**cue_fields(cue)) for segment in transcript.segments for cue in segment.cues()]


def test_spoken_words_appear_while_they_are_spoken_and_their_final_text_has_times_and_shades(
    visitor, home
):
    page = visitor.visit(home)
    press(page)
    await_words(page)
    assert page.locator(".partial").inner_text().split()[0] == "three"
    await_words(page, "two")
    assert page.locator("#level").get_attribute("aria-valuetext").endswith(" dB")
    press(page)
    page.wait_for_selector(IDLE)
    assert page.locator("#state").inner_text() == "Done."
    assert page.locator(".partial").inner_text() == ""
    assert words_of(page) == SPOKEN
    tips = [word.get_attribute("data-tip") for word in page.locator(".segment .word").all()]
    assert all(re.fullmatch(r"[\d.]+ s – [\d.]+ s · confidence \d+ %", tip) for tip in tips)
    page.locator(".segment .word").first.hover()
    assert page.locator("#word-tip").inner_text() == tips[0]
    name, content = downloaded(page, "SRT")
    assert re.fullmatch(r"recording-[\d-]+\.srt", name)
    assert re.findall("[a-z]+", content) == SPOKEN.split()
    assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\nthree", content)


@pytest.mark.all
def test_the_rate_and_the_hot_words_are_announced_and_packets_last_a_tenth_of_a_second(
    visitor, home
):
    page = visitor.visit(home)
    page.locator("summary", has_text="Hot words").click()
    page.get_by_label("Hot words").fill(" seven eight \n\nnine\n")
    record(page)
    start = json.loads(visitor.sent[0])
    rate = page.evaluate("new AudioContext().sampleRate")
    assert start == {
        "signal": "start",
        "nbest": 1,
        "continuous_decoding": True,
        "hot_words": ["seven eight", "nine"],
        "sample_rate": rate,
    }
    packets = visitor.sent[1:-1]
    assert {len(packet) for packet in packets[:-1]} == {round(rate / 10) * 2}
    assert 0 < len(packets[-1]) <= round(rate / 10) * 2
    assert json.loads(visitor.sent[-1]) == {"signal": "end"}


@pytest.mark.all
def test_a_second_recording_stands_above_the_first_and_both_can_be_removed(
    visitor, home, recording
):
    page = visitor.visit(home)
    choose(page, recording)
    page.wait_for_selector(".segment")
    record(page)
    titles = page.locator(".recording h2").all_inner_texts()
    assert [title.split(",")[0] for title in titles] == ["Microphone", "digits.wav"]
    page.get_by_role("button", name="Remove: Microphone").click()
    assert page.evaluate("document.activeElement.ariaLabel") == "Remove: digits.wav"
    page.get_by_role("button", name="Remove: digits.wav").click()
    assert not page.locator("#results").is_visible()


@pytest.mark.all
def test_a_recording_that_is_removed_while_it_lasts_ends(visitor, home):
    page = visitor.visit(home)
    press(page)
    await_words(page)
    page.get_by_role("button", name="Remove").click()
    page.wait_for_selector(IDLE)
    assert page.locator(".recording").count() == 0
    record(page)
    assert words_of(page) == SPOKEN


def test_a_chosen_file_shows_the_text_and_the_subtitles_of_the_python_interface(
    visitor, home, recording, digits
):
    page = visitor.visit(home, allowed=("clipboard-read", "clipboard-write"))
    choose(page, recording)
    page.wait_for_selector(".segment")
    transcript = digits.transcribe(recording)
    assert words_of(page) == transcript.text == SPOKEN
    cues = cues_of(transcript)
    assert downloaded(page, "SRT") == ("digits.srt", "\n".join(srt_lines(cues)))
    assert downloaded(page, "VTT") == ("digits.vtt", "\n".join(vtt_lines(cues)))
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == SPOKEN


@pytest.mark.all
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("Those with their own sound", ["left", "right"]),
        ("Each by itself", ["left", "right"]),
        ("Mixed", []),
        ("The second (right)", []),
    ],
)
def test_the_channels_of_a_call_are_chosen_and_named(
    visitor, home, recording, digits, tmp_path, choice, names
):
    samples, rate = soundfile.read(recording)
    quiet = np.zeros_like(samples)
    left, right = np.concatenate((samples, quiet)), np.concatenate((quiet, samples))
    soundfile.write(tmp_path / "call.wav", np.stack((left, right), axis=1), rate)

    page = visitor.visit(home, allowed=("clipboard-read", "clipboard-write"))
    page.locator("summary", has_text="Channels").click()
    page.get_by_label("Channels of a recording").select_option(label=choice)
    choose(page, tmp_path / "call.wav")
    page.locator(".progress", has_text=re.compile(r"^\d:")).wait_for()
    channel = page.locator("#channel").input_value()
    transcript = digits.transcribe(
        tmp_path / "call.wav", channel=parse_channel(channel) if channel else None
    )
    times = page.locator(".segment .time").all_inner_texts()
    assert [time.split()[1:] for time in times] == [[name] for name in names] or not names
    assert downloaded(page, "SRT") == ("call.srt", "\n".join(srt_lines(cues_of(transcript))))
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == transcript.text
    assert re.findall(r"\[(\w+)\]", transcript.text) == names


DROP = """([name, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([Uint8Array.from(bytes)], name));
  for (const type of ["dragenter", "dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""


def test_hot_words_that_the_units_cannot_spell_are_named(visitor, home, recording):
    page = visitor.visit(home)
    page.locator("summary", has_text="Hot words").click()
    page.get_by_label("Hot words").fill("four\nzebra")
    choose(page, recording)
    page.wait_for_selector(".segment")
    assert page.locator(".progress").inner_text() == "0:02 · the model cannot spell: zebra"
    page.get_by_label("Hot words").fill("zebra")
    press(page)
    page.get_by_role("alert").filter(has_text="The server cannot use these hot words: ").wait_for()


@pytest.mark.all
def test_a_dropped_file_is_transcribed_and_its_name_is_shown_as_text(visitor, home, recording):
    page = visitor.visit(home)
    name = "<img src=x onerror=alert(1)>.wav"
    page.evaluate(DROP, [name, list(recording.read_bytes())])
    page.wait_for_selector(".segment")
    assert words_of(page) == SPOKEN
    assert page.locator(".recording h2").inner_text() == name
    assert not page.locator("#drop").is_visible()


@pytest.mark.all
def test_several_files_are_transcribed_in_order_and_a_broken_file_says_so(
    visitor, home, recording, tmp_path
):
    broken, empty = tmp_path / "broken.wav", tmp_path / "empty.wav"
    broken.write_bytes(b"no sound at all")
    empty.write_bytes(b"")
    page = visitor.visit(home)
    choose(page, broken, empty, recording)
    page.wait_for_selector(".segment")
    failed = page.locator("[data-failed] .progress").all_inner_texts()
    assert failed[0] == "The file is empty."  # the newest recording is the first
    assert failed[1].startswith("The server cannot read this file.")
    assert words_of(page) == SPOKEN


@pytest.mark.all
def test_without_a_secure_context_the_page_asks_for_a_secure_address_and_still_takes_files(
    visitor, digits, recording
):
    """At a loopback address another host name needs permission; in a network it would be the
    server's own.
    """
    with served(digits, ServeOptions(origins=("*",))) as server:
        page = visitor.visit(server.url.replace("127.0.0.1", OTHER_HOST), allowed=())
        words = page.locator("#notices").inner_text()
        assert "Browsers give the microphone only to secure pages (https)" in words
        assert f"this page came from http://{OTHER_HOST}:" in words
        press(page)
        assert page.get_by_role("alert").inner_text() == words
        choose(page, recording)
        page.wait_for_selector(".segment")
        page.get_by_role("button", name="Copy").click()
        page.get_by_text("Copied").wait_for()


@pytest.mark.all
def test_a_token_is_asked_for_only_where_it_is_needed_and_is_kept_in_memory(
    visitor, home, digits, recording
):
    assert not visitor.visit(home).get_by_label("Token").is_visible()
    with served(digits, ServeOptions(token="open sesame")) as guarded:
        page = visitor.visit(guarded.url)
        press(page)
        page.get_by_role("alert").filter(has_text="the token is missing or wrong").wait_for()
        page.wait_for_selector(IDLE)
        assert page.locator(".recording").count() == 0
        choose(page, recording)
        page.wait_for_selector("[data-failed]")
        page.get_by_label("Token").fill("open sesame")
        record(page)
        assert words_of(page) == SPOKEN
        choose(page, recording)
        page.locator(".segment").nth(1).wait_for()
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [
            0,
            0,
            "",
        ]
        page.reload()
        assert page.get_by_label("Token").input_value() == ""


@pytest.mark.all
def test_a_server_that_vanishes_leaves_the_text_so_far(visitor, digits, recording):
    with served(digits, ServeOptions()) as running:
        page = visitor.visit(running.url)
        press(page)
        await_words(page, "three")
    page.get_by_role("alert").wait_for()
    assert page.locator(IDLE).count() == 1
    assert "three" in page.locator(".recording .text").inner_text()
    press(page)
    page.get_by_role("alert").filter(has_text="The server does not answer at 127.0.0.1:").wait_for()
    choose(page, recording)
    page.wait_for_selector("[data-failed]")
    assert "Does the server still run?" in page.locator("[data-failed] .progress").inner_text()
