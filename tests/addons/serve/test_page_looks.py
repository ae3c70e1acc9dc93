"""The parts of the page without a recogniser: themes, contrast, keyboard, phone, screen readers,
subtitles.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.serve.browser import chromium
from wenet_uio.addons.listen.results import Cue, srt_lines, vtt_lines

STATIC = Path(str(files("wenet_uio.addons.serve") / "static"))
WORDS = [("sure", 0.99), ("fairly", 0.8), ("unsure", 0.6), ("guess", 0.2), ("plain", None)]
TEXT = " ".join(word for word, _ in WORDS)
SEGMENT = {
    "start": 61.0,
    "end": 64.0,
    "text": TEXT,
    "words": [
        {"word": word, "start": 61 + place / 2, "end": 61.25 + place / 2, "confidence": confidence}
        for place, (word, confidence) in enumerate(WORDS)
    ],
    "cues": [{"start": 61.0, "end": 64.0, "text": TEXT}],
}
FILL = """(segment) => Promise.all(["recording", "notices"].map((name) => import(`/static/${name}.js`)))
  .then(([{ Recording }, { Notices }]) => {
    for (const title of ["second.wav", "first.wav"]) {
      const recording = new Recording(title, title, () => {});
      recording.addSegments([segment]);
      recording.setPartial("words that may change");
      recording.progress = "1:04";
      document.getElementById("recordings").prepend(recording.element);
    }
    const notices = new Notices(document.getElementById("notices"));
    notices.error("one", "Something does not work.");
    notices.info("two", "Good to know.");
    for (const id of ["results", "token-field"]) document.getElementById(id).hidden = false;
    document.querySelector("details").open = true;
  })"""
CONTRASTS = """() => {
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, below) => [0, 1, 2].map((each) => top[each] * top[3] + below[each] * (1 - top[3])).concat(1);
  const ground = (element) => {
    if (!element) return [255, 255, 255, 1];
    const own = rgba(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
  };
  const light = (color) => {
    const [r, g, b] = color.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || element.disabled || !element.checkVisibility()) continue;
    const below = ground(element);
    const pair = [light(over(rgba(getComputedStyle(element).color), below)), light(below)];
    found[element.textContent.trim()] = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  }
  return found;
}"""
STOPS = """() => [...document.querySelectorAll("button, input, select, textarea, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled && !each.hidden)
  .map((each) => each.id || each.ariaLabel || each.textContent.trim())"""
FOCUSED = "() => (({ id, ariaLabel, textContent }) => id || ariaLabel || textContent.trim())(document.activeElement)"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def fill(visitor, server):
    """Open the page and show two recordings, notices and all fields."""

    def visit(**options):
        page = visitor.visit(server.url, **options)
        page.evaluate(FILL, SEGMENT)
        return page

    return visit


def picture(page):
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")) / 255


@pytest.mark.all
def test_both_themes_are_drawn_and_differ_and_the_switch_gives_the_other_one(fill):
    pictures = {scheme: picture(fill(color_scheme=scheme)) for scheme in ("light", "dark")}
    assert pictures["light"].mean() > 0.8
    assert pictures["dark"].mean() < 0.2
    for drawn in pictures.values():
        assert len(np.unique(drawn @ [1, 1000, 1_000_000])) > 100
        assert picture.std() > 0.05
    page = fill(color_scheme="light")
    page.get_by_role("button", name="Switch to the dark theme").click()
    assert np.allclose(picture(page).mean(), pictures["dark"].mean(), atol=0.02)
    page.get_by_role("button", name="Switch to the light theme").click()
    assert np.allclose(picture(page).mean(), pictures["light"].mean(), atol=0.02)


@pytest.mark.all
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_contrast_of_all_text_is_at_least_4_5(fill, scheme):
    page = fill(color_scheme=scheme)
    page.locator(".segment .word").first.hover()
    states = ("idle", "listening", "finishing")
    for state in states:
        page.evaluate("(state) => (document.getElementById('speak').dataset.state = state)", state)
        page.wait_for_timeout(300)  # the colour of the button changes gradually
        contrasts = page.evaluate(CONTRASTS)
        assert {word for word, _ in WORDS} | {
            "Start",
            "Something does not work.",
            "words that may change",
        } <= set(contrasts)
        assert {text: value for text, value in contrasts.items() if value < 4.5} == {}


@pytest.mark.all
def test_the_shade_of_a_word_follows_its_confidence(fill):
    page = fill()
    words = page.locator(".recording").first.locator(".word")
    shown = [word.get_attribute("data-confidence") for word in words.all()]
    assert shown == ["3", "2", "1", "0", None]
    shades = words.evaluate_all(
        "(words) => words.map((word) => getComputedStyle(word).backgroundColor)"
    )
    assert len(set(shades)) == 4
    legend = page.locator(".legend .word")
    assert (
        legend.evaluate_all(
            "(words) => words.map((word) => getComputedStyle(word).backgroundColor)"
        )
        == shades[:4]
    )


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(fill):
    page = fill()
    wanted = page.evaluate(STOPS)
    assert len(wanted) > 12
    reached = []
    for _ in wanted:
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert reached == wanted


def test_arrow_keys_go_from_word_to_word_and_show_times_and_confidence(fill):
    page = fill()
    tip = page.locator("#word-tip")
    page.locator(".word[tabindex='0']").first.focus()
    assert tip.inner_text() == "1:01.00 – 1:01.25 · confidence 99 %"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "fairly"
    assert tip.inner_text() == "1:01.50 – 1:01.75 · confidence 80 %"
    page.keyboard.press("End")
    assert tip.inner_text() == "1:03.00 – 1:03.25"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "plain"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED) == "sure"
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUSED) == "sure"


@pytest.mark.all
def test_arrow_keys_cross_segments_of_a_long_text_and_skip_those_without_words(fill):
    page = fill()
    page.evaluate(
        """(segment) => import("/static/recording.js").then(({ Recording }) => {
          const recording = new Recording("long.wav", "long", () => {});
          document.getElementById("recordings").prepend(recording.element);
          recording.addSegments(Array(5000).fill(segment));
          recording.addSegments([{ ...segment, words: [] }, segment]);
        })""",
        SEGMENT,
    )
    long = page.locator(".recording").first
    long.locator(".word").nth(4).focus()
    page.keyboard.press("ArrowRight")
    place = "() => [...document.querySelectorAll('.segment .word')].indexOf(document.activeElement)"
    assert page.evaluate(place) == 5
    page.keyboard.press("End")
    assert page.evaluate(place) == 5001 * 5 - 1
    # Beside the word, to which the page has scrolled
    page.locator("#word-tip", has_text="1:03.00").wait_for()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate(place) == 5000 * 5 - 1
    assert long.locator(".word[tabindex='0']").count() == 1


@pytest.mark.all
def test_a_phone_shows_the_whole_width_and_buttons_that_a_finger_can_hit(fill):
    page = fill(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    sizes = page.locator("button:visible:not(.link)").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect()).map(({ width, height }) => "
        "[width, height])"
    )
    assert len(sizes) == 10
    assert min(min(size) for size in sizes) >= 36
    page.locator(".segment .word").nth(1).tap()
    tip = page.locator("#word-tip").bounding_box()
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 360


@pytest.mark.all
def test_screen_readers_hear_final_text_once_and_no_partial_text(fill):
    page = fill()
    live = page.locator(".text[aria-live=polite][role=log]")
    assert live.all_inner_texts() == [f"1:01\n\n{TEXT}"] * 2
    assert (
        page.locator("[aria-live] .partial, [role=log] .partial, [role=status] .partial").count()
        == 0
    )
    assert page.get_by_role("alert").all_inner_texts() == ["Something does not work."]
    assert page.get_by_role("meter", name="Level of the microphone").count() == 1
    unnamed = page.locator("button:visible, input:visible, textarea:visible").evaluate_all(
        "(all) => all.filter((each) => !(each.ariaLabel || each.textContent.trim() || "
        "each.labels?.length)).length"
    )
    assert unnamed == 0


@pytest.mark.all
def test_subtitles_are_those_of_the_package(visitor, server):
    random = np.random.default_rng(5)
    lists = [[], [Cue(7199.9995, 7200.2, "a < b & c > d")]]
    for _ in range(200):
        times = np.sort(np.round(random.uniform(0, 9000, 2 * random.integers(1, 6)), 3)).tolist()
        lists.append(
            [Cue(start, end, "words") for start, end in zip(times[::2], times[1::2], strict=True)]
        )
    script = "(lists) => import('/static/subtitles.js').then(({ srt, vtt }) => lists.map((c) => [srt(c), vtt(c)]))"
    made = visitor.visit(server.url).evaluate(
        script, [[cue._asdict() for cue in cues] for cues in lists]
    )
    assert made == [["\n".join(srt_lines(cues)), "\n".join(vtt_lines(cues))] for cues in lists]


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_files_of_the_page_are_short_and_of_sound_syntax(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    if path.suffix == ".js" and shutil.which("node"):
        checked = subprocess.run(
            ["node", "--check", "--input-type=module"], input=text, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stderr
